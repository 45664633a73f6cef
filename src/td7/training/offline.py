"""Members that learn from a dataset: they only make updates; episodes are played to evaluate."""

from td7.engine.cuda import Fetch
from td7.training.loop import SingleProcessTraining


class OfflineTraining(SingleProcessTraining):
    """All members make the same updates, with random numbers of their own, until one ends."""

    def _advance(self) -> None:
        for m, member in enumerate(self.members):
            self._schedule_evaluations(m, member.steps)
            member.finished |= member.steps >= self.config.steps
        is_finished = all(member.finished for member in self.members)
        self._record_results(block=is_finished)
        if not is_finished:
            self._train()

    def _train(self) -> None:
        """Make updates until an evaluation or a row of metrics is due."""
        with self._changing():
            with self.clock.phase("update"):
                due = self._updates_until_due()
                self.engine.advance([0 if member.fault else due for member in self.members])
            for m, member in enumerate(self.members):
                if not member.fault:
                    member.steps = self.engine.updates[m]
                    self._fetch_metrics_if_due(m)
        self._write_metrics(wait=False)

    def _updates_until_due(self) -> int:
        c, done = self.config, max(self.engine.updates)  # those of all that have not ended
        return min(c.steps - done, *(n - done % n for n in (c.evaluate_every, c.metrics_every)))

    def _evaluated_policy(self, m: int) -> Fetch:
        return self.engine.fetch_policy(m)

    def _activity(self, m: int) -> str:
        del m
        dataset = self._setup.dataset
        return f"training on {dataset.name}" if dataset else "training"

"""Members that learn from a dataset: they only make updates; episodes are played to evaluate."""

from td7.engine.cuda import Fetch
from td7.training.loop import SingleProcessTraining


class OfflineTraining(SingleProcessTraining):
    """All members make the same number of updates, each with its own random numbers."""

    def _advance(self) -> None:
        for m, member in enumerate(self.members):
            self._schedule_evaluations(m, member.steps)
            member.finished = member.steps >= self.config.steps
        self._record_results(block=self.members[0].finished)
        if not self.members[0].finished:
            self._train()

    def _train(self) -> None:
        """Make updates until an evaluation or a row of metrics is due."""
        with self._changing():
            with self.clock.phase("update"):
                self.engine.advance([self._updates_until_due()] * len(self.members))
            for m, member in enumerate(self.members):
                member.steps = self.engine.updates[m]
                self._fetch_metrics_if_due(m)
        self._write_metrics(wait=False)

    def _updates_until_due(self) -> int:
        c, done = self.config, self.engine.updates[0]
        return min(c.steps - done, *(n - done % n for n in (c.evaluate_every, c.metrics_every)))

    def _evaluated_policy(self, m: int) -> Fetch:
        return self.engine.fetch_policy(m)

    def _activity(self, m: int) -> str:
        del m
        dataset = self._setup.dataset
        return f"training on {dataset.name}" if dataset else "training"

"""Members that learn from given data: updates only; episodes are played to evaluate."""

from typing import Any

from td7.datasets.dataset import Dataset
from td7.engine.cuda import Fetch
from td7.training.loop import Training
from td7.training.member import Member


class OfflineTraining(Training):
    """All members make the same updates at the same time, each with its own random numbers."""

    def __init__(self, *arguments: Any, dataset: Dataset, **options: Any) -> None:
        self._dataset = dataset
        super().__init__(*arguments, **options)

    def _fill_replay(self) -> None:
        dataset = self._dataset
        self.replay.fill(self.learner.prepare_rows(dataset.rows, dataset.layout))

    def _advance(self) -> None:
        for m, member in enumerate(self.members):
            self._evaluate_until(m, member.steps)
            member.finished = member.steps >= self.config.steps
        self._take_evaluations(block=self.members[0].finished)
        if not self.members[0].finished:
            self._train()

    def _train(self) -> None:
        """A stretch of updates, up to the next one after which something is due."""
        with self.clock.phase("update"):
            self.engine.advance([self._wanted()] * len(self.members))
        for m, member in enumerate(self.members):
            member.steps = self.engine.updates[m]
            self._fetch_metrics_if_due(m)
        self._write_metrics(wait=False)

    def _wanted(self) -> int:
        c, done = self.config, self.engine.updates[0]
        return min(c.steps - done, *(n - done % n for n in (c.evaluate_every, c.metrics_every)))

    def _test_policy(self, m: int) -> Fetch:
        return self.engine.fetch_policy(m)

    def _doing(self, member: Member) -> str:
        del member
        return f"training on {self._dataset.name}"

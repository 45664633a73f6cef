"""The policies that a run writes: policy/ with every snapshot, policies/ for those it keeps."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from td7.algorithms.learner import Learner
from td7.runs import policies
from td7.training.config import RunConfig
from td7.types import AnyFloat, TaskSpec


class PolicyFolders:
    """Where the flat weights of a run's members are written."""

    def __init__(self, run: Path, config: RunConfig, spec: TaskSpec, learner: Learner) -> None:
        self._run = run
        self._config = config
        self._spec = spec
        self._network = learner.policy_network
        self._explorations = [asdict(one) for one in learner.explorations()]

    def keep_if_due(self, m: int, weights: AnyFloat, step: int) -> None:
        """Keep the policy of the m-th member's evaluation, if those at this step are kept."""
        every = self._config.keep_policies
        if every and step % every == 0:
            self._write(policies.kept_policies(self._run, step), [m], [weights], step)

    def save(self, weights: Sequence[AnyFloat], steps: Sequence[int]) -> None:
        """Save the policy of each member, with the steps that it has made."""
        self._write(self._run / "policy", range(len(weights)), weights, list(steps))

    def _write(
        self,
        folder: Path,
        positions: Sequence[int],
        weights: Sequence[AnyFloat],
        steps: int | list[int],
    ) -> None:
        first = self._explorations[0]
        is_common = all(one == first for one in self._explorations)
        record = {
            "algorithm": self._config.algorithm,
            "exploration": first if is_common else self._explorations,
            "steps": steps,
        }
        members = self._config.members
        by_id = {members.ids[m]: one for m, one in zip(positions, weights, strict=True)}
        policies.save(folder, self._spec, self._network, by_id, record, members)

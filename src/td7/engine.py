"""How updates run: which members, with which random numbers, on which rows."""

from collections.abc import Sequence

import torch
from torch import Tensor

from td7.algorithms.base import Learner
from td7.errors import RunError
from td7.replay import Replay
from td7.streams import Stream, derived_seed
from td7.targets import assign

NOISE_BLOCK = 250  # updates drawn at once; part of every result, like the stream numbers


class Noise:
    """The random numbers of updates, as data: block b of a member is a function of (seed, b)."""

    def __init__(
        self, learner: Learner, batch_size: int, seeds: Sequence[int], like: Tensor
    ) -> None:
        self._seeds = seeds
        self._generator = torch.Generator(like.device)
        shape = (len(seeds), NOISE_BLOCK)
        self._uniforms = like.new_empty(*shape, batch_size, dtype=torch.float64)
        self._normals = {
            name: like.new_empty(*shape, *size) for name, size in learner.noise_shapes.items()
        }
        self._blocks = [-1] * len(seeds)
        self._member = torch.arange(len(seeds), device=like.device)

    def draw(self, counts: Sequence[int]) -> tuple[Tensor, dict[str, Tensor]]:
        """Uniforms [S, B] to sample with and normals [S, ...], of each member's next update."""
        for member, count in enumerate(counts):
            block = count // NOISE_BLOCK
            if block != self._blocks[member]:
                self._fill(member, block)
        device = self._uniforms.device
        place = torch.tensor([count % NOISE_BLOCK for count in counts], device=device)
        normals = {name: x[self._member, place] for name, x in self._normals.items()}
        return self._uniforms[self._member, place], normals

    def _fill(self, member: int, block: int) -> None:
        self._generator.manual_seed(derived_seed(self._seeds[member], Stream.UPDATE, block))
        self._uniforms[member].uniform_(generator=self._generator)
        for normals in self._normals.values():
            normals[member].normal_(generator=self._generator)
        self._blocks[member] = block


class Engine:
    """Runs updates of stacked members, each on its own clock. The host knows every count."""

    def __init__(
        self, learner: Learner, replay: Replay, batch_size: int, seeds: Sequence[int]
    ) -> None:
        self.learner = learner
        self.replay = replay
        self.seeds = list(seeds)
        self.updates = [0] * len(seeds)  # done, a member
        like = next(iter(learner.state().values()))
        self._noise = Noise(learner, batch_size, seeds, like)
        self._metrics = {name: like.new_full((len(seeds),), torch.nan) for name in learner.metrics}
        self._count = torch.zeros(len(seeds), device=like.device, dtype=torch.int64)
        # The update at which a metric was first not finite; 0: never.
        self._broken = {name: torch.zeros_like(self._count) for name in learner.metrics}

    def state(self) -> dict[str, Tensor]:
        return {f"metric.{name}": metric for name, metric in self._metrics.items()}

    def restore(self, updates: Sequence[int]) -> None:
        """Counts, after `state()` was filled."""
        self.updates = list(updates)
        self._count.copy_(torch.tensor(self.updates))

    def advance(self, wanted: Sequence[int]) -> int:
        """Runs updates of the members that want some until the next point of interest.

        That is where a member has had what it wanted, or copied its targets. Members whose clocks
        of actor steps disagree are first brought together. Gives back the number of updates run.
        """
        actor_every, target_every = self.learner.actor_every, self.learner.target_every
        takers = [m for m, n in enumerate(wanted) if n > 0]
        phases = {m: self.updates[m] % actor_every for m in takers}
        latest = max(phases.values())
        if any(phase != latest for phase in phases.values()):
            takers = [m for m in takers if phases[m] == latest]
            span = 1
        else:
            span = min(
                min(wanted[m], target_every - self.updates[m] % target_every) for m in takers
            )
        active = self._mask(takers)
        for _ in range(span):
            phase = self.updates[takers[0]] % actor_every
            self._update(active, train_actor=phase == actor_every - 1)
            for m in takers:
                self.updates[m] += 1
        due = [m for m in takers if self.updates[m] % target_every == 0]
        if due:
            self.learner.copy_targets(self._mask(due))
            self.replay.reset_max_priority(self._mask(due))
        return span

    def _mask(self, members: Sequence[int]) -> Tensor | None:
        """[S]; None where all are meant, which saves the masking."""
        if len(members) == len(self.updates):
            return None
        mask = torch.zeros(len(self.updates), dtype=torch.bool)
        mask[list(members)] = True
        return mask.to(self._count.device)

    def _update(self, active: Tensor | None, *, train_actor: bool) -> None:
        uniforms, normals = self._noise.draw(self.updates)
        indices = self.replay.sample(uniforms)
        batch = self.replay.batch(indices)
        update = self.learner.update(batch, normals, active, train_actor=train_actor)
        self.replay.set_priorities(indices, update.priorities, active)
        assign(self._count, self._count + 1, active)
        for name, value in update.metrics.items():
            assign(self._metrics[name], value, active)
            broken = self._broken[name]
            first = ~value.isfinite() & (broken == 0)
            assign(broken, self._count.where(first, broken), active)

    def metrics(self, member: int) -> dict[str, float]:
        """The member's latest metrics; waits for the device."""
        return {name: float(metric[member]) for name, metric in self._metrics.items()}

    def check(self) -> None:
        """Raises for the first loss or value that was not finite; waits for the device."""
        broken = torch.stack(list(self._broken.values())).cpu()  # [metrics, S]
        if not broken.any():
            return
        update = int(broken[broken > 0].min())
        metric, member = (broken == update).nonzero()[0].tolist()
        name = list(self._broken)[metric]
        raise RunError(f"seed {self.seeds[member]}, update {update}: {name} is not finite")

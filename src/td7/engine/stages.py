"""What an engine does on its device. No stage reads a number back: the host never waits here."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from td7.algorithms.learner import Batch, Learner, Turn
from td7.engine.compiling import Compiler
from td7.engine.noise import Noise
from td7.engine.replay import Replay, to_device
from td7.networks import kernels
from td7.networks.masked import assign
from td7.types import Float32, RowLayout


class Stages:
    """Storing, updating, noting faults and acting, each of which is compiled as one."""

    def __init__(self, learner: Learner, replay: Replay, noise: Noise, members: int) -> None:
        """`members`: that are there; the replay's others are padding."""
        device, stacked = replay.device, len(replay.added)
        self.learner = learner
        self.replay = replay
        self.count = torch.zeros(stacked, device=device, dtype=torch.int64)  # updates made
        # The update after which a metric was first seen not to be finite; 0: never.
        self.first_faults = torch.zeros(
            stacked, len(learner.metrics), device=device, dtype=torch.int64
        )
        self.inbox = Inbox(replay.layout, stacked, device)
        self.present = self.mask(range(members))
        self.actions = torch.zeros(stacked, replay.layout.action_dim, device=device)
        self._noise = noise

    def compile(self, compiler: Compiler) -> None:
        """Replace the stages by compiled ones: on a GPU parts of updates, which can overlap."""
        if self.count.is_cuda:
            kernels.activate(tf32=torch.get_float32_matmul_precision() != "highest")
            self.learner.wrap_stages(compiler)
            updating: tuple[str, ...] = ("_draw", "_write")
        else:
            updating = ("update",)
        for name in (*updating, "note_faults", "store", "act"):
            setattr(self, name, compiler(getattr(self, name)))

    def update(self, turn: Turn) -> None:
        """Sample a batch, update the learner, write the new priorities."""
        indices, batch, normals = self._draw()
        priorities = self.learner.update(batch, normals, turn)
        self._write(indices, priorities, turn.active)

    def _draw(self) -> tuple[Tensor, Batch, dict[str, Tensor]]:
        uniforms, normals = self._noise.at(self.count)
        sample = self.replay.sample if self.learner.is_prioritised else self.replay.sample_uniformly
        indices = sample(uniforms)
        return indices, self.replay.batch(indices), normals

    def _write(self, indices: Tensor, priorities: Tensor | None, active: Tensor | None) -> None:
        if priorities is not None:
            self.replay.set_priorities(indices, priorities, active)
        assign(self.count, self.count + 1, active)

    def note_faults(self) -> None:
        is_first = ~self.metrics().isfinite() & (self.first_faults == 0)
        self.first_faults.copy_(self.count.unsqueeze(1).where(is_first, self.first_faults))

    def metrics(self) -> Tensor:
        """The latest metrics, [S, metrics]."""
        return torch.stack(list(self.learner.recorded.values()), dim=1)

    def store(self, active: Tensor | None) -> None:
        """Append the inbox's rows of the active members to the replay."""
        rows, _, _ = self.inbox.parts()
        self.replay.append_each(rows, active)
        self.learner.observe(self.replay.layout.split(rows).state.unsqueeze(1), active)

    def act(self) -> None:
        """Compute `actions`, to explore the inbox's states with."""
        _, states, noise = self.inbox.parts()
        dtype = self.replay.dtype
        actions = self.learner.explore(states.unsqueeze(1).to(dtype), noise.unsqueeze(1).to(dtype))
        self.actions.copy_(actions.squeeze(1))

    def mask(self, members: Sequence[int]) -> Tensor | None:
        """A mask [S] of the members; None if it is all of them, which saves the masking."""
        if len(members) == len(self.count):
            return None
        mask = torch.zeros(len(self.count), dtype=torch.bool)
        mask[list(members)] = True
        return to_device(mask, self.count.device)


class Inbox:
    """What a time step brings for every member: a row, the next state, noise to explore with."""

    def __init__(self, layout: RowLayout, members: int, device: torch.device) -> None:
        self._widths = [layout.width, layout.state_dim, layout.action_dim]
        self._tensor = torch.zeros(members, sum(self._widths), device=device)
        self._host = self._tensor
        if device.type == "cuda":
            self._host = torch.zeros(self._tensor.shape, pin_memory=True)

    def fill(self, rows: Float32, states: Float32, noise: Float32) -> None:
        np.concatenate((rows, states, noise), axis=1, out=self._host.numpy()[: len(rows)])
        if self._host is not self._tensor:
            self._tensor.copy_(self._host, non_blocking=True)

    def parts(self) -> tuple[Tensor, ...]:
        """Rows, states and noise, [S, width] each."""
        return torch.split(self._tensor, self._widths, dim=1)

"""How updates run: which members, with which random numbers, eager, compiled or as a CUDA graph.

Members with checkpoints owe many updates at once: `advance` runs them in units of a few. Within a
unit every member has a first and a last slot, so that members with other counts, other amounts of
work and other phases share the same stacked updates; in the slots that are not its own a member is
masked out. The host knows every count beforehand and never waits for the device.

Members without checkpoints make one update a time step, all together: `step` stores what they just
did, updates them and tells their next actions.
"""

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from td7.algorithms.learner import Batch, Lanes, Learner, Turn
from td7.engine.compiling import COMPILES, Compiler, _told, can_compile, is_compile_error
from td7.engine.cuda import CudaLanes, Fetch, Program, Slot
from td7.engine.noise import NOISE_BLOCK, Noise
from td7.engine.replay import Replay, sent
from td7.errors import RunError
from td7.networks import kernels
from td7.networks.masked import assign
from td7.types import AnyFloat, Float32

# Updates of a unit, about: a longer one means fewer launches and drains, a shorter one less idling.
UNIT = 10
LONG_UNIT = 50  # in a graph, where all members have so many to make
AHEAD = 2  # units that may be waiting for the device; more would make new episodes wait

MODES = ("eager", "compiled", "graph")
PRIORITIES = ("mean_priority", "max_priority")  # of the rows stored; told beside the metrics


class Engine:
    """Runs updates of stacked members, each on its own clock. The host knows every count."""

    def __init__(
        self,
        learner: Learner,
        replay: Replay,
        batch_size: int,
        seeds: Sequence[int],
        mode: str = "eager",
        warn: Callable[[str], None] = print,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.learner = learner
        self.replay = replay
        self.seeds = list(seeds)
        self.mode = mode
        self.updates = [0] * len(seeds)  # done, or on their way to the device, a member
        sizes = (LONG_UNIT, UNIT) if mode == "graph" else (UNIT,)
        self.units = [-(-n // learner.actor_every) * learner.actor_every for n in sizes]

        like = next(iter(learner.state().values()))
        members = len(seeds)
        self.noise = Noise(learner, batch_size, seeds, like)
        self._count = torch.zeros(members, device=like.device, dtype=torch.int64)
        # The update by which a metric was first seen not to be finite; 0: never.
        self._broken = torch.zeros(
            members, len(learner.metrics), device=like.device, dtype=torch.int64
        )

        # What a time step brings (row, next state, noise) and what it asks for.
        layout = replay.layout
        self._splits = [layout.width, layout.state_dim, layout.action_dim]
        self._inbox = torch.zeros(members, sum(self._splits), device=like.device)
        self._inbox_host = self._inbox
        if like.device.type == "cuda":
            self._inbox_host = torch.zeros(self._inbox.shape, pin_memory=True)
        self._outbox = torch.zeros(members, layout.action_dim, device=like.device)

        self._warn = warn
        self._say, self._news = say, ""  # to be told before the first update
        self.is_compiling = False  # which nothing can interrupt

        self._update_stage: Callable[..., Any] = self._update
        self._draw_stage: Callable[..., Any] = self._draw
        self._write_stage: Callable[..., Any] = self._write
        self._look_stage: Callable[..., Any] = self._look_for_faults
        self._store_stage: Callable[..., Any] = self._store
        self._act_stage: Callable[..., Any] = self._act
        if like.device.type == "cuda":
            # TF32 products: float32's range, ten bits of mantissa; five times faster.
            torch.set_float32_matmul_precision("high")
        self._compiler: Compiler | None = None
        self._must_rehearse = like.device.type == "cuda"
        if mode != "eager" and can_compile(like.device, warn):
            self._compiler = compiler = Compiler(warn)
            if like.device.type == "cuda":  # in stages, which can run beside each other
                kernels.load()
                learner.wrap_stages(compiler)
                self._draw_stage = compiler(self._draw)
                self._write_stage = compiler(self._write)
            else:
                self._update_stage = compiler(self._update)
            self._look_stage = compiler(self._look_for_faults)
            self._store_stage = compiler(self._store)
            self._act_stage = compiler(self._act)
            self._news = COMPILES
        self._programs: dict[Hashable, Program] = {}
        self._ahead: deque[torch.cuda.Event] = deque()

    def state(self) -> dict[str, Tensor]:
        return {f"metric.{name}": metric for name, metric in self.learner.recorded.items()}

    def restore(self, updates: Sequence[int]) -> None:
        """Counts, after `state()` was filled."""
        self.updates = list(updates)
        self._count.copy_(torch.tensor(self.updates))

    def advance(self, wanted: Sequence[int]) -> None:
        """Runs one unit of updates of the members that want some, as far as each may go in it.

        A member stops early where it has had what it wanted and where its targets are copied.
        """
        k, target_every = self.learner.actor_every, self.learner.target_every
        begin, end = [], []
        for m, want in enumerate(wanted):
            count = self.updates[m]
            room = (target_every - count % target_every, NOISE_BLOCK - count % NOISE_BLOCK)
            begin.append(count % k)  # slot i is of phase i % k
            end.append(begin[m] + max(0, min(want, *room)))
            if want > 0:
                self.noise.prepare(m, count)
        unit = next((n for n in self.units if n <= min(end)), self.units[-1])
        end = [min(slot, unit) for slot in end]
        everyone = range(len(wanted))
        slots = []
        for i in range(unit):
            members = [m for m in everyone if begin[m] <= i < end[m]]
            slots.append(Slot(members, members if i % k == k - 1 else None))
        self._unit(slots)
        self._count_updates([end[m] - begin[m] for m in everyone])

    def step(
        self, rows: Float32, states: Float32, noise: Float32, members: Sequence[int]
    ) -> AnyFloat:
        """Stores a row [S, width] of every member, makes one update of `members`, whatever the
        phase of each, and gives the actions [S, A] to explore `states` with.

        They are the actions after the update; where it leaves the policies as they are, they are
        given before it, and a GPU makes it while the environments step.
        """
        for m in members:
            self.noise.prepare(m, self.updates[m])

        def due(every: int) -> list[int]:
            return [m for m in members if (self.updates[m] + 1) % every == 0]

        slots = [Slot(members, due(self.learner.actor_every) or None)] if members else []
        changes_policies = bool(due(self.learner.policy_every))
        self._fill_inbox(rows, states, noise)
        self._step(slots if changes_policies else [])
        actions = Fetch(self._outbox)
        if not changes_policies:
            self._unit(slots)
        for m in range(len(self.seeds)):
            self.replay.count_row(m)
        if self._count_updates([int(m in members) for m in range(len(self.seeds))]):
            self._act_stage()  # the policies that act may be among what was copied
            actions = Fetch(self._outbox)
        return actions.value()

    def act(self, states: Float32, noise: Float32) -> AnyFloat:
        """The actions [S, A] to explore `states` with, as `step` gives them."""
        self._fill_inbox(np.zeros((len(states), self._splits[0]), np.float32), states, noise)
        self._act_stage()
        return Fetch(self._outbox).value()

    def _fill_inbox(self, *parts: Float32) -> None:
        np.concatenate(parts, axis=1, out=self._inbox_host.numpy())
        if self._inbox_host is not self._inbox:
            self._inbox.copy_(self._inbox_host, non_blocking=True)

    def _count_updates(self, done: Sequence[int]) -> bool:
        """And whether targets were due to be copied."""
        for m, count in enumerate(done):
            self.updates[m] += count
        due = [
            m
            for m, count in enumerate(done)
            if count and self.updates[m] % self.learner.target_every == 0
        ]
        if due:
            mask = self._mask(due)
            self.learner.copy_targets(mask)
            self.replay.reset_max_priority(mask)
        return bool(due)

    def _unit(self, slots: Sequence[Slot]) -> None:
        """The updates of some slots."""
        if slots and not self._is_replayed(self._masked_updates, slots):
            self._updates(slots)
        self.is_compiling = False

    def _step(self, slots: Sequence[Slot]) -> None:
        """Stores the inbox' rows, updates, acts on its states."""
        if not self._is_replayed(self._masked_step, slots):
            self._store_stage(None)
            self._unit(slots)
            self._act_stage()
        self.is_compiling = False

    def _updates(self, slots: Sequence[Slot]) -> None:
        self._tell()
        self._rehearse()
        for slot in slots:
            if slot.members:
                whose = None
                if slot.actors is not None and len(slot.actors) < len(slot.members):
                    whose = self._mask(slot.actors)
                self._update_stage(Turn(self._mask(slot.members), slot.actors is not None, whose))
        self._look_stage()

    def _tell(self) -> None:
        if self._news:
            self._say(self._news)
            self._news, self.is_compiling = "", True

    def _rehearse(self) -> None:
        """Before the first compiled update on a GPU, one of nobody.

        In stages a backward pass is compiled when it is due, after half of an update.
        """
        if self._compiler is None or not self._must_rehearse:
            return
        self._must_rehearse = False
        nobody = torch.zeros_like(self._count, dtype=torch.bool)
        try:
            self._update(Turn(nobody, trains_actors=False))
        except Exception as error:  # what is no fault of the compiler's comes again
            self._compiler.give_up(error)

    def _mask(self, members: Sequence[int]) -> Tensor | None:
        """[S]; None where all are meant, which saves the masking."""
        if len(members) == len(self.updates):
            return None
        mask = torch.zeros(len(self.updates), dtype=torch.bool)
        mask[list(members)] = True
        return sent(mask, self._count.device)

    # -- one update ----------------------------------------------------------------------------

    def _update(self, turn: Turn) -> None:
        indices, batch, normals = self._draw_stage()
        priorities = self.learner.update(batch, normals, turn)
        self._write_stage(indices, priorities, turn.active)

    def _draw(self) -> tuple[Tensor, Batch, dict[str, Tensor]]:
        uniforms, normals = self.noise.at(self._count)
        sample = self.replay.sample if self.learner.is_prioritised else self.replay.sample_uniformly
        indices = sample(uniforms)
        return indices, self.replay.batch(indices), normals

    def _write(self, indices: Tensor, priorities: Tensor | None, active: Tensor | None) -> None:
        if priorities is not None:
            self.replay.set_priorities(indices, priorities, active)
        assign(self._count, self._count + 1, active)

    def _look_for_faults(self) -> None:
        first = ~self._metrics().isfinite() & (self._broken == 0)
        self._broken.copy_(self._count.unsqueeze(1).where(first, self._broken))

    def _metrics(self) -> Tensor:
        """[S, metrics]"""
        return torch.stack(list(self.learner.recorded.values()), dim=1)

    def _store(self, active: Tensor | None) -> None:
        self.replay.append_each(self._inbox[:, : self._splits[0]], active)

    def _act(self) -> None:
        _, states, noise = torch.split(self._inbox, self._splits, dim=1)
        dtype = self.replay.dtype
        actions = self.learner.explore(states.unsqueeze(1).to(dtype), noise.unsqueeze(1).to(dtype))
        self._outbox.copy_(actions.squeeze(1))

    # -- CUDA graphs ---------------------------------------------------------------------------

    def _is_replayed(
        self, work: Callable[[Program, Sequence[Slot]], None], slots: Sequence[Slot]
    ) -> bool:
        """The work as one CUDA graph, captured the first time; False, and nothing is done, where
        that is not asked for or fails.
        """
        if self.mode != "graph":
            return False
        name = (work.__name__, *(slot.actors is not None for slot in slots))
        if name not in self._programs:
            if slots:
                self._tell()
            program = self._captured(work, slots)
            if program is None:
                return False
            self._programs[name] = program
        self._replay(self._programs[name], slots)
        return True

    def _captured(
        self, work: Callable[[Program, Sequence[Slot]], None], slots: Sequence[Slot]
    ) -> Program | None:
        """None where that fails: from then on there are no graphs, and that is told."""
        stream = torch.cuda.current_stream()
        try:
            return self._capture(work, slots)
        except RuntimeError as error:
            torch.cuda.set_stream(stream)  # a capture that fails does not leave its own
            torch.cuda.synchronize()
            if self._compiler is not None and is_compile_error(error):
                self._compiler.give_up(error)
                return self._captured(work, slots)  # of functions as they are
            self._warn(f"updates run without a CUDA graph, which fails here: {_told(error)}")
        self.mode, self.learner.lanes = "compiled", Lanes()
        self._programs.clear()
        return None

    def _replay(self, program: Program, slots: Sequence[Slot]) -> None:
        if len(self._ahead) >= AHEAD:
            self._ahead.popleft().synchronize()
        program.give(slots)
        program.graph.replay()
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]  # PyTorch's
        event.record()
        self._ahead.append(event)

    def _capture(
        self, work: Callable[[Program, Sequence[Slot]], None], slots: Sequence[Slot]
    ) -> Program:
        """Capturing changes nothing: no slot is anyone's yet, nothing is stored."""
        program = Program(slots, len(self.seeds), self._count.device)
        self.learner.lanes = CudaLanes()
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # PyTorch's
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # compiles, and lets libraries set themselves up
            work(program, slots)
            work(program, slots)
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        with torch.cuda.graph(program.graph):
            work(program, slots)
        program.stores.fill_(True)
        return program

    def _masked_updates(self, program: Program, slots: Sequence[Slot]) -> None:
        """Who takes part is read from the masks; the slots only say which of them train actors."""
        for (active, actors), slot in zip(program.masks, slots, strict=True):
            self._update(Turn(active, slot.actors is not None, actors))
        self.learner.lanes.join()
        self._look_stage()

    def _masked_step(self, program: Program, slots: Sequence[Slot]) -> None:
        self._store_stage(program.stores)
        if slots:
            self._masked_updates(program, slots)
        self._act_stage()

    # -- what the host asks for ----------------------------------------------------------------

    @property
    def metrics(self) -> tuple[str, ...]:
        """The names of what `fetch_metrics` gives."""
        return (*self.learner.metrics, *(PRIORITIES if self.learner.is_prioritised else ()))

    def fetch_metrics(self, member: int) -> Fetch:
        """The member's latest metrics."""
        found = self._metrics()[member]
        if self.learner.is_prioritised:
            found = torch.cat([found, self.replay.told_priorities(member).to(found.dtype)])
        return Fetch(found)

    def fetch_policy(self, member: int) -> Fetch:
        """The flat weights that act for the member after the updates given so far.

        Its value raises if one of the member's losses or values was not finite.
        """
        faults = Fetch(self._broken[member])
        return Fetch(self.learner.policies()[member], lambda: self._raise(member, faults))

    def check(self) -> None:
        """Raises if a loss or value of any member was not finite; waits for the device."""
        for member in range(len(self.seeds)):
            self._raise(member, Fetch(self._broken[member]))

    def _raise(self, member: int, faults: Fetch) -> None:
        pairs = zip(faults.value().tolist(), self.learner.metrics, strict=True)
        found = [(update, name) for update, name in pairs if update]
        if found:
            update, name = min(found, key=lambda fault: fault[0])
            raise RunError(f"seed {self.seeds[member]}, by update {update}: {name} is not finite")

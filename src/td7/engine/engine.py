"""How updates run: which members take part, with which random numbers.

Members with checkpoints owe many updates at once; `advance` makes them in units of several slots.
Within a unit every member has a first and a last slot, and it is masked out in all others: members
with different counts, amounts of work and phases share the same stacked updates. The host knows
every count beforehand and never waits for the device.

Members without checkpoints make one update per time step, all together: `step` stores what they
just did, updates them and returns their next actions.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import numpy as np
import torch
from torch import Tensor

from td7.algorithms.learner import Learner
from td7.engine.compiling import COMPILES, Compiler, can_compile
from td7.engine.cuda import Fetch, GraphRunner
from td7.engine.noise import Noise
from td7.engine.replay import Replay, to_device
from td7.engine.runner import HostRunner, Runner, Slot
from td7.engine.stages import Stages
from td7.errors import NotFiniteError
from td7.types import AnyFloat, Float32

# Updates per unit, about: longer units mean fewer launches and pauses, shorter ones less idling.
UNIT = 10
LONG_UNIT = 50  # in a graph, where all members have at least this many to make

PRIORITIES = ("mean_priority", "max_priority")  # of the stored rows; reported after the metrics


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
        *,
        tf32: bool = True,
        names: Sequence[str] = (),
    ) -> None:
        """`tf32`: a GPU multiplies float32 matrices as TF32. `names` name the members in errors.

        Learner and replay may have more members than there are seeds: the rest is padding, which
        never takes part.
        """
        self.learner = learner
        self.replay = replay
        self._names = list(names) or [f"seed {seed}" for seed in seeds]
        self.updates = [0] * len(seeds)  # of each member, made or on their way to the device
        self._retired: set[int] = set()
        sizes = (LONG_UNIT, UNIT) if mode == "graph" else (UNIT,)
        self.units = [-(-n // learner.actor_every) * learner.actor_every for n in sizes]

        like = next(iter(learner.state().values()))
        self.noise = Noise(learner, batch_size, seeds, like)
        self._stages = Stages(learner, replay, self.noise, len(seeds))
        if like.device.type == "cuda":
            # Differs from paper: matrix products on a GPU are TF32 unless `--precision float32` is
            # given.
            torch.set_float32_matmul_precision("high" if tf32 else "highest")
        compiler: Compiler | None = None
        if mode != "eager" and can_compile(like.device, warn):
            compiler = Compiler(warn)
            self._stages.compile(compiler)
        self._compiler = compiler
        self._say = say
        self._is_announced = False  # that the first update is compiled
        host = HostRunner(self._stages, compiler)
        self._runner: Runner = host
        if mode == "graph":
            self._runner = GraphRunner(host, self._stages, compiler, warn)

    def state(self) -> dict[str, Tensor]:
        return {f"metric.{name}": metric for name, metric in self.learner.recorded.items()}

    def restore(self, updates: Sequence[int]) -> None:
        """Counts, after `state()` was filled."""
        self.updates = list(updates)
        self._stages.count[: len(updates)] = torch.tensor(self.updates)

    def append(self, member: int, rows: Float32) -> None:
        """Store the member's next rows."""
        states = torch.from_numpy(self.replay.layout.split(rows).state)
        self.learner.observe(
            to_device(states, self.replay.device).unsqueeze(0), self._stages.mask([member])
        )
        self.replay.append(member, rows)

    def advance(self, wanted: Sequence[int]) -> None:
        """Make one unit of updates, as many of those wanted of each member as fit into it.

        A member stops early at the last update that it wants and where its targets are copied.
        """
        k, target_every = self.learner.actor_every, self.learner.target_every
        begin, end = [], []
        for m, want in enumerate(wanted):
            count = self.updates[m]
            room = (target_every - count % target_every, self.noise.room(count))
            begin.append(count % k)  # slot i is of phase i % k
            end.append(begin[m] + max(0, min(want, *room)))
            if want > 0:
                self.noise.prepare(m, count)
        fewest = min(slot for m, slot in enumerate(end) if m not in self._retired)
        unit = next((n for n in self.units if n <= fewest), self.units[-1])
        end = [min(slot, unit) for slot in end]
        everyone = range(len(wanted))
        slots = []
        for i in range(unit):
            members = [m for m in everyone if begin[m] <= i < end[m]]
            slots.append(Slot(members, members if i % k == k - 1 else None))
        self._update(slots)
        self._copy_targets(self._count([end[m] - begin[m] for m in everyone]))

    def step(
        self, rows: Float32, states: Float32, noise: Float32, members: Sequence[int]
    ) -> AnyFloat:
        """Store a row [S, width] of every member, make one update of `members`, whatever the
        phase of each, and return the actions [S, A] to explore `states` with.

        They are the actions after the update. Where it leaves the policies unchanged, they are
        computed before it, so that a GPU makes the update while the environments step.
        """
        for m in members:
            self.noise.prepare(m, self.updates[m])

        def due(every: int) -> list[int]:
            return [m for m in members if (self.updates[m] + 1) % every == 0]

        slots = [Slot(members, due(self.learner.actor_every) or None)] if members else []
        changes_policies = bool(due(self.learner.policy_every))
        self._stages.inbox.fill(rows, states, noise)
        self._step(slots if changes_policies else [])
        actions = Fetch(self._stages.actions)
        if not changes_policies:
            self._update(slots)
        for m in range(len(rows)):
            self.replay.count_row(m)
        copying = self._count([int(m in members) for m in range(len(rows))])
        if copying:
            self._copy_targets(copying)
            self._stages.act()  # the policies that act may be among what was copied
            actions = Fetch(self._stages.actions)
        return actions.value()[: len(rows)]

    def act(self, states: Float32, noise: Float32) -> AnyFloat:
        """The actions [S, A] to explore `states` with, as `step` returns them."""
        rows = np.zeros((len(states), self.replay.layout.width), np.float32)
        self._stages.inbox.fill(rows, states, noise)
        with self._shielded():
            self._stages.act()
        return Fetch(self._stages.actions).value()[: len(states)]

    def _update(self, slots: Sequence[Slot]) -> None:
        with self._announced(slots), self._shielded():
            self._runner.update(slots)

    def _step(self, slots: Sequence[Slot]) -> None:
        with self._announced(slots), self._shielded():
            self._runner.step(slots)

    def _shielded(self) -> AbstractContextManager[None]:
        return nullcontext() if self._compiler is None else self._compiler.shielded()

    def stop(self) -> None:
        """The run is to stop: from now on, no function runs as it is because compiling it fails."""
        if self._compiler is not None:
            self._compiler.stop()

    @contextmanager
    def _announced(self, slots: Sequence[Slot]) -> Iterator[None]:
        """Say before the first update that it is compiled."""
        if self._compiler is None or self._is_announced or not slots:
            yield
            return
        self._is_announced = True
        self._say(COMPILES)
        with self._compiler.compiling():
            yield

    # -- the compiler --------------------------------------------------------------------------

    def watch_compiler(self, watch: Callable[[], AbstractContextManager[object]]) -> None:
        """From now on, `watch` makes the contexts in which functions are compiled."""
        if self._compiler is not None:
            self._compiler.watch = watch

    @property
    def compiling_since(self) -> float | None:
        """By time.monotonic(); None: the compiler is not running. It delays signals."""
        return None if self._compiler is None else self._compiler.since

    @property
    def compiled_seconds(self) -> float:
        """The seconds that the compiler has run before."""
        return 0.0 if self._compiler is None else self._compiler.seconds

    def _count(self, made: Sequence[int]) -> list[int]:
        """Add the updates that each member made; return the members whose targets are due."""
        for m, count in enumerate(made):
            self.updates[m] += count
        target_every = self.learner.target_every
        return [m for m, count in enumerate(made) if count and self.updates[m] % target_every == 0]

    def _copy_targets(self, members: Sequence[int]) -> None:
        if members:
            mask = self._stages.mask(members)
            self.learner.copy_targets(mask)
            self.replay.reset_max_priority(mask)

    def retire(self, member: int) -> None:
        """From now on the member makes no updates, for which its priorities may be unfit."""
        self._retired.add(member)
        self.replay.reset_priorities(member)

    # -- what the host asks for ----------------------------------------------------------------

    @property
    def metrics(self) -> tuple[str, ...]:
        """The names of what `fetch_metrics` fetches."""
        return (*self.learner.metrics, *(PRIORITIES if self.learner.is_prioritised else ()))

    def fetch_metrics(self, member: int, *, checked: bool = False) -> Fetch:
        """The member's latest metrics; `checked`, `Fetch.value` raises like a policy's."""
        metrics = self._stages.metrics()[member]
        if self.learner.is_prioritised:
            priorities = self.replay.priority_metrics(member)
            metrics = torch.cat([metrics, priorities.to(metrics.dtype)])
        return Fetch(metrics, self._check(member)) if checked else Fetch(metrics)

    def fetch_policy(self, member: int) -> Fetch:
        """The flat weights that act for the member after all updates that were started.

        `Fetch.value` raises if one of the member's losses or values was not finite.
        """
        return Fetch(self.learner.policies()[member], self._check(member))

    def check(self, members: Iterable[int] | None = None) -> None:
        """Raise if a loss or value of one of the members, or of any, was not finite.

        This waits for the device.
        """
        for member in range(len(self._names)) if members is None else members:
            self._check(member)()

    def _check(self, member: int) -> Callable[[], None]:
        """What raises if one of the losses or values up to now is not finite."""
        faults = Fetch(self._stages.first_faults[member])
        return lambda: self._raise(member, faults)

    def _raise(self, member: int, first_faults: Fetch) -> None:
        pairs = zip(first_faults.value().tolist(), self.learner.metrics, strict=True)
        faults = [(update, name) for update, name in pairs if update]
        if faults:
            update, name = min(faults, key=lambda fault: fault[0])
            raise self.not_finite(member, name, update)

    def not_finite(self, member: int, what: str, update: int | None = None) -> NotFiniteError:
        """The error of a member, `update`: by which something of it is not finite; now."""
        by = self.updates[member] if update is None else update
        return NotFiniteError(
            f"{self._names[member]}, by update {by}: {what} is not finite", member=member, what=what
        )

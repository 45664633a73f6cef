"""Who runs the stages: the host, one stage after the other, or a CUDA graph (`td7.engine.cuda`)."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import torch

from td7.algorithms.learner import Turn
from td7.engine.compiling import Compiler
from td7.engine.stages import Stages


class Slot(NamedTuple):
    """One stacked update."""

    members: Sequence[int]  # who takes part
    actors: Sequence[int] | None  # whose actors are trained; None: no actor is


class Runner(ABC):
    @abstractmethod
    def update(self, slots: Sequence[Slot]) -> None:
        """Make the updates of some slots, in order."""

    @abstractmethod
    def step(self, slots: Sequence[Slot]) -> None:
        """Store the inbox's rows, make the updates, act on the inbox's states."""


class HostRunner(Runner):
    """Starts every stage from the host."""

    def __init__(self, stages: Stages, compiler: Compiler | None) -> None:
        self._stages = stages
        # On a GPU a backward pass is compiled when it is first due, in the middle of an update.
        self._rehearses_with = compiler if stages.count.is_cuda else None

    def update(self, slots: Sequence[Slot]) -> None:
        if not slots:
            return
        self._rehearse()
        for slot in slots:
            if slot.members:
                self._stages.update(self._turn(slot))
        self._stages.note_faults()

    def step(self, slots: Sequence[Slot]) -> None:
        self._stages.store(self._stages.present)
        self.update(slots)
        self._stages.act()

    def _turn(self, slot: Slot) -> Turn:
        whose = None
        if slot.actors is not None and len(slot.actors) < len(slot.members):
            whose = self._stages.mask(slot.actors)
        return Turn(self._stages.mask(slot.members), slot.actors is not None, whose)

    def _rehearse(self) -> None:
        """Before the first compiled update on a GPU, make one of no member, which may fail."""
        compiler, self._rehearses_with = self._rehearses_with, None
        if compiler is None:
            return
        nobody = torch.zeros_like(self._stages.count, dtype=torch.bool)
        try:
            self._stages.update(Turn(nobody, trains_actors=False))
        except Exception as error:  # an error that the compiler did not cause comes again
            compiler.give_up(error)

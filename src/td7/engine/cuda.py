"""What runs on a CUDA device: side streams as lanes, graphs, copies to the host."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from td7.algorithms.learner import Lanes
from td7.types import AnyFloat


class Slot(NamedTuple):
    """One stacked update."""

    members: Sequence[int]  # who takes part
    actors: Sequence[int] | None  # whose actor is trained; None: no actor is


class CudaLanes(Lanes):
    """Lanes as side streams; within a CUDA graph they become parallel branches."""

    def __init__(self) -> None:
        self._streams: dict[str, torch.cuda.Stream] = {}
        self._open: set[str] = set()

    def beside(self, name: str, *reads: Tensor) -> AbstractContextManager[None]:
        stream = self._stream(name)
        stream.wait_stream(torch.cuda.current_stream())
        for tensor in reads:  # their memory is not to be used again before the lane is done
            tensor.record_stream(stream)
        self._open.add(name)
        context: AbstractContextManager[None] = torch.cuda.stream(stream)
        return context

    def _stream(self, name: str) -> torch.cuda.Stream:
        if name not in self._streams:
            self._streams[name] = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # PyTorch's
        return self._streams[name]

    def kept(self, tensor: Tensor) -> Tensor:
        return tensor.clone()

    def join(self, *names: str) -> None:
        for name in self._open & set(names or self._open):
            torch.cuda.current_stream().wait_stream(self._streams[name])
            self._open.discard(name)


class Fetch:
    """A small tensor on its way to the host."""

    def __init__(self, tensor: Tensor, check: Callable[[], None] = lambda: None) -> None:
        self._check = check
        self._event: torch.cuda.Event | None = None
        if tensor.device.type == "cuda":
            self._host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
            self._host.copy_(tensor, non_blocking=True)
            self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]  # PyTorch's
            self._event.record()
        else:
            self._host = tensor.clone()

    def is_ready(self) -> bool:
        if self._event is None:
            return True
        return bool(self._event.query())  # type: ignore[no-untyped-call]  # PyTorch's

    def value(self) -> AnyFloat:
        """The numbers; waits for them if need be."""
        if self._event is not None:
            self._event.synchronize()
        self._check()
        array: AnyFloat = self._host.numpy()
        return array


class Program:
    """Work on the device as one CUDA graph, and who takes part in it."""

    def __init__(self, slots: Sequence[Slot], members: int, device: torch.device) -> None:
        # Of every slot: who takes part, and whose actor is trained.
        self.masks = torch.zeros(len(slots), 2, members, device=device, dtype=torch.bool)
        self.stores = torch.zeros(members, device=device, dtype=torch.bool)
        self.graph = torch.cuda.CUDAGraph()
        self._given: list[Slot] | None = None

    def give(self, slots: Sequence[Slot]) -> None:
        """Who takes part from the next replay on; the copy waits for those before it."""
        if self._given == slots:
            return
        masks = np.zeros(self.masks.shape, np.bool_)
        for mask, slot in zip(masks, slots, strict=True):
            mask[0, slot.members] = True
            mask[1, slot.actors or []] = True
        self.masks.copy_(torch.from_numpy(masks).pin_memory(), non_blocking=True)
        self._given = list(slots)

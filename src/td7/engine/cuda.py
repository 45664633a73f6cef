"""What runs on a CUDA device: side streams as lanes, graphs, copies to the host."""

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager

import numpy as np
import torch
from torch import Tensor

from td7.algorithms.learner import Lanes, Turn
from td7.engine.compiling import Compiler, is_compile_error, summary
from td7.engine.runner import HostRunner, Runner, Slot
from td7.engine.stages import Stages
from td7.types import AnyFloat

AHEAD = 2  # graphs that may be waiting for the device; with more, new episodes would wait


class CudaLanes(Lanes):
    """Lanes as side streams; within a CUDA graph they become parallel branches."""

    def __init__(self) -> None:
        self._streams: dict[str, torch.cuda.Stream] = {}
        self._open: set[str] = set()

    def beside(self, name: str, *reads: Tensor) -> AbstractContextManager[None]:
        stream = self._stream(name)
        stream.wait_stream(torch.cuda.current_stream())
        for tensor in reads:  # their memory must not be reused before the lane has read it
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
        """The numbers; waits for them if they have not arrived. Raises what `check` raises."""
        if self._event is not None:
            self._event.synchronize()
        self._check()
        array: AnyFloat = self._host.numpy()
        return array


class MaskedGraph:
    """A CUDA graph of some slots, with masks of who takes part in each."""

    def __init__(self, slots: Sequence[Slot], members: int, device: torch.device) -> None:
        # Of every slot: who takes part, and whose actors are trained.
        self.masks = torch.zeros(len(slots), 2, members, device=device, dtype=torch.bool)
        self.stores = torch.zeros(members, device=device, dtype=torch.bool)
        self.graph = torch.cuda.CUDAGraph()
        self._slots: list[Slot] | None = None  # that the masks stand for

    def set_masks(self, slots: Sequence[Slot]) -> None:
        """For the next replays; the device copies the masks after those before."""
        if self._slots == slots:
            return
        masks = np.zeros(self.masks.shape, np.bool_)
        for mask, slot in zip(masks, slots, strict=True):
            mask[0, slot.members] = True
            mask[1, slot.actors or []] = True
        self.masks.copy_(torch.from_numpy(masks).pin_memory(), non_blocking=True)
        self._slots = list(slots)


Work = Callable[[MaskedGraph, Sequence[Slot]], None]


class GraphRunner(Runner):
    """Replays CUDA graphs, each captured at its first use.

    Once capturing fails, it warns, and the host starts all stages.
    """

    def __init__(
        self,
        host: HostRunner,
        stages: Stages,
        compiler: Compiler | None,
        warn: Callable[[str], None],
    ) -> None:
        self._host = host
        self._stages = stages
        self._compiler = compiler
        self._warn = warn
        self.works = True  # no capture has failed
        self._graphs: dict[Hashable, MaskedGraph] = {}
        self._ahead: deque[torch.cuda.Event] = deque()

    def update(self, slots: Sequence[Slot]) -> None:
        if not slots:
            return
        graph = self._graph(self._masked_updates, slots)
        if graph is None:
            self._host.update(slots)
        else:
            self._replay(graph, slots)

    def step(self, slots: Sequence[Slot]) -> None:
        graph = self._graph(self._masked_step, slots)
        if graph is None:
            self._host.step(slots)
        else:
            self._replay(graph, slots)

    def _graph(self, work: Work, slots: Sequence[Slot]) -> MaskedGraph | None:
        """The graph of this work on such slots; None once capturing has failed."""
        key = (work.__name__, *(slot.actors is not None for slot in slots))
        if self.works and key not in self._graphs:
            graph = self._try_capture(work, slots)
            if graph is not None:
                self._graphs[key] = graph
        return self._graphs.get(key)

    def _try_capture(self, work: Work, slots: Sequence[Slot]) -> MaskedGraph | None:
        stream = torch.cuda.current_stream()
        try:
            return self._capture(work, slots)
        except RuntimeError as error:
            torch.cuda.set_stream(stream)  # a capture that fails does not leave its own stream
            torch.cuda.synchronize()
            if self._compiler is not None and is_compile_error(error):
                self._compiler.give_up(error)
                return self._try_capture(work, slots)  # of functions as they are
            self._warn(f"updates run without a CUDA graph, which fails here: {summary(error)}")
        self.works, self._stages.learner.lanes = False, Lanes()
        self._graphs.clear()
        return None

    def _capture(self, work: Work, slots: Sequence[Slot]) -> MaskedGraph:
        """Capturing changes nothing: no member takes part in a slot, and no row is stored."""
        count = self._stages.count
        graph = MaskedGraph(slots, len(count), count.device)
        self._stages.learner.lanes = CudaLanes()
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # PyTorch's
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # compiles, and lets libraries set themselves up
            work(graph, slots)
            work(graph, slots)
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph.graph):
            work(graph, slots)
        present = self._stages.present
        graph.stores.copy_(torch.ones_like(graph.stores) if present is None else present)
        return graph

    def _replay(self, graph: MaskedGraph, slots: Sequence[Slot]) -> None:
        if len(self._ahead) >= AHEAD:
            self._ahead.popleft().synchronize()
        graph.set_masks(slots)
        graph.graph.replay()
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]  # PyTorch's
        event.record()
        self._ahead.append(event)

    def _masked_updates(self, graph: MaskedGraph, slots: Sequence[Slot]) -> None:
        """The masks say who takes part; the slots only say which of them train actors."""
        for (active, actors), slot in zip(graph.masks, slots, strict=True):
            self._stages.update(Turn(active, slot.actors is not None, actors))
        self._stages.learner.lanes.join()
        self._stages.note_faults()

    def _masked_step(self, graph: MaskedGraph, slots: Sequence[Slot]) -> None:
        self._stages.store(graph.stores)
        if slots:
            self._masked_updates(graph, slots)
        self._stages.act()

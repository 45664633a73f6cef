"""What a piece of the package does: which lines follow which, and which operations they call."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from torch.overrides import TorchFunctionMode

import td7

SOURCE = str(Path(td7.__file__).parent)

# A file, a function, a line of it, and the line after it or the name of an operation of PyTorch.
Step = tuple[str, str, int, int | str]


def _is_ours(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(SOURCE)


def _step(frame: FrameType, line: int, then: int | str) -> Step:
    return frame.f_code.co_filename, frame.f_code.co_name, line, then


class _Operations(TorchFunctionMode):
    """Adds every operation on tensors, with the line of the package that called it."""

    def __init__(self, steps: set[Step]) -> None:
        super().__init__()
        self._steps = steps

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and not _is_ours(frame):
            frame = frame.f_back
        if frame is not None:
            self._steps.add(_step(frame, frame.f_lineno, getattr(func, "__name__", repr(func))))
        return func(*args, **(kwargs or {}))


@contextmanager
def steps_of_the_package() -> Iterator[set[Step]]:
    """The steps that this thread makes within the block."""
    steps: set[Step] = set()

    def follow(frame: FrameType, event: str, _: object) -> Callable[..., Any] | None:
        if not _is_ours(frame):
            return None
        before = frame.f_lineno

        def step(frame: FrameType, event: str, _: object) -> Any:
            nonlocal before
            if event in ("line", "return"):
                steps.add(_step(frame, before, frame.f_lineno if event == "line" else "return"))
                before = frame.f_lineno
            return step

        return step

    tracer = sys.gettrace()
    with _Operations(steps):
        sys.settrace(follow)
        try:
            yield steps
        finally:
            sys.settrace(tracer)

"""torch.compile: functions compiled whole, or run as they are where compiling fails.

The only module that uses private names of PyTorch. It imports them late, since they load all of
PyTorch's compiler.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import torch

from td7.errors import RunError, one_line
from td7.processes import signals_blocked, start_signal_receiver

# PyTorch counts the compilations of each function, and of all functions, in a process; by default
# it stops at 8 and 256. Every run compiles each of its functions a few times.
RECOMPILES = 10_000
SIGNAL_SECONDS = 0.1  # until a signal has arrived that the compiler received at the same time
COMPILES = "compiling updates: a minute or two, seconds if it was done before"


class Compiler:
    """Compiles functions. Once PyTorch fails to, it warns, and all functions run as they are.

    A function is compiled whole before any of it runs: one that fails to compile has done nothing.
    Functions are called within `shielded`, because the terminal and `timeout` signal the programs
    that compile as well, which then fail.
    """

    def __init__(self, warn: Callable[[str], None]) -> None:
        self.since: float | None = None  # by time.monotonic(); None: it is not compiling
        self.seconds = 0.0  # that it has compiled before
        self.watch: Callable[[], AbstractContextManager[object]] = nullcontext
        self._watching = ExitStack()
        self._warn = warn
        self._works = True
        self._is_stopping = False
        start_signal_receiver()
        # In force during calls alone, since whatever else the process compiles reads them as well.
        self._settings = torch._dynamo.config.patch(
            recompile_limit=RECOMPILES,
            accumulated_recompile_limit=RECOMPILES,
            trace_autograd_ops=True,  # `torch.autograd.grad` within a compiled function
        )

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        compiled = compile_whole(function)

        def run(*arguments: Any) -> Any:
            # A function called by a compiled one is compiled with it.
            if self._works and not torch.compiler.is_compiling():
                try:
                    with self._settings, self._noticing():
                        return compiled(*arguments)
                except Exception as error:
                    if not is_compile_error(error):
                        raise
                    self.give_up(error)
            return function(*arguments)

        return run

    @contextmanager
    def compiling(self) -> Iterator[None]:
        """A context in which it compiles, of which the outermost is within `watch`."""
        if self.since is not None:
            yield
            return
        self.since = time.monotonic()
        try:
            with self.watch():
                yield
        finally:
            self.seconds += time.monotonic() - self.since
            self.since = None

    @contextmanager
    def _noticing(self) -> Iterator[None]:
        """Notice when a call compiles: also later, for members that update without the others.

        PyTorch has no public name for that.
        """
        from torch._dynamo.callback import callback_handler as handler

        begin = handler.register_start_callback(
            lambda _: self._watching.enter_context(self.compiling())
        )
        end = handler.register_end_callback(lambda _: self._watching.close())
        try:
            yield
        finally:
            handler.remove_start_callback(begin)
            handler.remove_end_callback(end)

    def shielded(self) -> AbstractContextManager[None]:
        """A context in which no program that this thread starts receives signals."""
        return signals_blocked()

    def stop(self) -> None:
        """From now on, a function that fails to compile is an error: the run is to stop.

        Updates of functions as they are would differ in the last bits from those of a run that was
        not stopped.
        """
        self._is_stopping = True

    def give_up(self, error: Exception) -> None:
        """Run all functions as they are from now on."""
        time.sleep(SIGNAL_SECONDS)
        if self._is_stopping:
            problem = f"compilation failed while the run was stopping ({summary(error)})"
            raise RunError(problem) from error
        _warn_of(error, self._warn)
        self._works = False


def can_compile(device: torch.device, warn: Callable[[str], None]) -> bool:
    """Whether PyTorch's compiler works here; it needs a C++ compiler, or Triton for a GPU."""
    try:
        with signals_blocked():
            compile_whole(lambda x: 2 * x + 1)(torch.ones(8, device=device))
    except Exception as error:  # whatever a compiler or a missing one raises
        _warn_of(error, warn)
        return False
    return True


def compile_whole(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, compiled at its first call without leaving any of it to Python."""
    options: dict[str, Any] = {
        # Otherwise PyTorch times several reductions on a GPU and takes the fastest, which may
        # differ between days and so may the rounding.
        "deterministic": True,
        # An optimiser's step reads the gradients of up to this many tensors where they are.
        "max_pointwise_cat_inputs": 16,
    }
    compiled: Callable[..., Any] = torch.compile(
        function, fullgraph=True, dynamic=False, options=options
    )
    return compiled


def is_compile_error(error: Exception) -> bool:
    """Whether PyTorch's compiler raised it, not the function; these classes are not public."""
    from torch._dynamo import exc

    return isinstance(error, exc.TorchDynamoException | exc.FailOnRecompileLimitHit)


def summary(error: Exception) -> str:
    """One line, without PyTorch's advice on debugging."""
    return one_line(error).partition(" Set TORCH")[0][:200]


@contextmanager
def compiled_autograd_unchanged() -> Iterator[None]:
    """Restore afterwards whether backward passes are compiled: importing d3rlpy changes it."""
    from torch._dynamo import config

    before = config.compiled_autograd
    try:
        yield
    finally:
        config.compiled_autograd = before


def _warn_of(error: Exception, warn: Callable[[str], None]) -> None:
    warn(f"updates run without compilation, which fails here: {summary(error)}")

"""torch.compile: functions compiled whole, or run as they are where compiling fails."""

from collections.abc import Callable
from typing import Any

import torch

from td7.errors import one_line

# Of one function, in one process: every run compiles its own, a few times each.
RECOMPILES = 10_000
COMPILES = "compiling updates: a minute or two, seconds if it was done before"


class Compiler:
    """PyTorch's. Once it fails, all functions run as they are, and that is told.

    A function is compiled whole before any of it runs: what fails to compile has done nothing yet.
    """

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._works = True
        config = torch._dynamo.config
        config.recompile_limit = config.accumulated_recompile_limit = RECOMPILES

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        compiled = _compiled(function)

        def run(*arguments: Any) -> Any:
            # A function within another is compiled with it.
            if self._works and not torch.compiler.is_compiling():
                try:
                    # For as long as a call: programs of others are compiled otherwise with it.
                    with torch._dynamo.config.patch(trace_autograd_ops=True):
                        return compiled(*arguments)
                except Exception as error:
                    if not is_compile_error(error):
                        raise
                    self.give_up(error)
            return function(*arguments)

        return run

    def give_up(self, error: Exception) -> None:
        self._warn(f"updates run without compilation, which fails here: {_told(error)}")
        self._works = False


def can_compile(device: torch.device, warn: Callable[[str], None]) -> bool:
    """Whether PyTorch's compiler works here; it needs a C++ compiler, or Triton for a GPU."""
    try:
        _compiled(lambda x: 2 * x + 1)(torch.ones(8, device=device))
    except Exception as error:  # whatever a compiler or a missing one raises
        warn(f"updates run without compilation, which fails here: {_told(error)}")
        return False
    return True


def is_compile_error(error: Exception) -> bool:
    from torch._dynamo import exc  # they have no public name

    return isinstance(error, exc.TorchDynamoException | exc.FailOnRecompileLimitHit)


def _told(error: Exception) -> str:
    """Without PyTorch's advice on how to look into it."""
    return one_line(error).partition(" Set TORCH")[0][:200]


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    options: dict[str, Any] = {
        # Else a GPU times ways to add numbers up, takes the fastest, and rounds as the day is.
        "deterministic": True,
        # An optimiser's step reads the gradients of so many tensors where they are.
        "max_pointwise_cat_inputs": 16,
    }
    compiled: Callable[..., Any] = torch.compile(
        function, fullgraph=True, dynamic=False, options=options
    )
    return compiled

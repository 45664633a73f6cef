"""How a run reports what ended it, and closes what it opened."""

import traceback
from collections.abc import Callable
from contextlib import ExitStack
from errno import EAGAIN, EMFILE, ENFILE, ENOMEM
from pathlib import Path

from td7.errors import InputError, RunError, describe_error, one_line, out_of_memory
from td7.runs.listeners import ListenerFault


def run_error(error: BaseException, path: Path, outcome: str) -> RunError | None:
    """Return the error that reports another one and its outcome, such as what is saved.

    None: the error comes out as it is. It is the user's, or no `Exception`.
    """
    if isinstance(error, RunError):
        return type(error)(f"{error}; {outcome}", error.details)
    if isinstance(error, OSError) and not _is_of_processes(error):
        return RunError(f"cannot write to {path}: {reason(error)}; {outcome}")
    if isinstance(error, InputError) or not isinstance(error, Exception):
        return None
    details = "".join(traceback.format_exception(error))
    return RunError(f"{out_of_memory(error) or describe_error(error)}; {outcome}", details)


def _is_of_processes(error: OSError) -> bool:
    """Whether a pipe or the start of a process failed, and not a file."""
    return isinstance(error, ConnectionError) or error.errno in (EAGAIN, EMFILE, ENFILE, ENOMEM)


def is_interrupt(error: BaseException) -> bool:
    """Whether Ctrl-C raised the error, or the like, in the user's listener or elsewhere."""
    raised = error.raised if isinstance(error, ListenerFault) else error
    return isinstance(raised, KeyboardInterrupt)


def reason(error: BaseException) -> str:
    """Describe an error on one line, without the file that an OSError names."""
    return (isinstance(error, OSError) and error.strerror) or one_line(error)


def close_all(resources: ExitStack, warn: Callable[[str], None]) -> None:
    """Close everything; an error then neither hides an earlier one nor fails a finished run."""
    try:
        resources.close()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # of an environment that calls `sys.exit`, for example
        warn(f"an error after the run had ended: {describe_error(error)}")

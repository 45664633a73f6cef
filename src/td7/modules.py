"""Modules and scripts of the user, which register tasks, algorithms and studies.

Workers import this module, so no torch here.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

from td7.errors import (
    NOT_FAULTS,
    ControlFlow,
    InputError,
    MissingModule,
    describe_error,
    is_missing,
)


def import_named(module: str, named_by: str) -> None:
    """Import a user's module for what it registers; an error message begins with `named_by`."""
    try:
        with script_import():
            import_module(module)
    except StopScriptImport:
        raise InputError(
            f"{named_by}: module {module!r} uses td7 when it is imported: put that under "
            "`if __name__ == '__main__':`"
        ) from None
    except NOT_FAULTS:
        raise
    except BaseException as error:  # foreign code may raise anything, and even exit
        message = f"{named_by}: module {module!r} cannot be imported: {describe_error(error)}"
        if is_missing(error, module):
            searched = "(the current folder is searched as well)"
            raise MissingModule(f"{message} {searched}", module) from error
        raise InputError(message) from error


class StopScriptImport(ControlFlow):
    """Ends the import of a user's script where the script first runs something with td7."""


class _ScriptImport:
    is_active = False  # whether this process is importing a user's script


def stop_script_import() -> None:
    """Raise StopScriptImport during an import; every function that starts a run calls this."""
    if _ScriptImport.is_active:
        raise StopScriptImport


@contextmanager
def script_import() -> Iterator[None]:
    """Run a user's script or module within the block for its definitions only."""
    before = _ScriptImport.is_active
    _ScriptImport.is_active = True
    try:
        yield
    finally:
        _ScriptImport.is_active = before

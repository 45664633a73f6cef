"""Who receives a run's new rows besides its tables: the caller's listener.

Everything in td7 that needs the rows later reads the tables.
"""

from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from td7.errors import ControlFlow

# Receives a table's name ("evaluations", "episodes" or "metrics") and its new rows. A listener that
# also has the methods `started(path)` and `ended(path, error)` learns when the run begins and ends.
Listener = Callable[[str, list[dict[str, float]]], None]


class ListenerFault(ControlFlow):
    """Carries an exception of the user's listener past the handlers of the run's own errors."""

    def __init__(self, raised: BaseException) -> None:
        super().__init__()
        self.raised = raised


class ListenerQueue:
    """Collects what happens until the run passes it on to the user's listener.

    A listener that has raised gets no further calls.
    """

    def __init__(self, listener: Listener) -> None:
        self._listener: Listener | None = listener
        self._rows: deque[tuple[str, list[dict[str, float]]]] = deque()

    def __call__(
        self, table: str, columns: Sequence[str], rows: Sequence[Sequence[object]]
    ) -> None:
        named = [dict(zip(columns, map(_number, row), strict=True)) for row in rows]
        self._rows.append((table, named))

    def start(self, path: Path) -> None:
        self._call(getattr(self._listener, "started", None), path)

    def pass_on(self) -> None:
        """Call the listener with all rows collected so far; raise ListenerFault if it raises."""
        while self._rows and self._listener is not None:
            self._call(self._listener, *self._rows.popleft())

    def end(self, path: Path, error: BaseException | None) -> None:
        """Pass on the last rows and say how the run ended: None if it came to its last step."""
        self.pass_on()
        self._call(getattr(self._listener, "ended", None), path, error)

    def _call(self, function: Callable[..., None] | None, *arguments: object) -> None:
        if function is None:
            return
        try:
            function(*arguments)
        except BaseException as raised:
            self._listener = None
            raise ListenerFault(raised) from raised


def _number(value: object) -> float:
    """Return the number that a reader of the table gets: an int or a float."""
    text = str(value)
    return int(text) if text.lstrip("-").isdigit() else float(text)

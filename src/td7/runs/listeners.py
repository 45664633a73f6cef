"""Who receives a run's new rows besides its tables: TensorBoard's event files and callbacks.

The event files use the tags of Stable-Baselines3, so that TensorBoard can show runs of both side by
side; every seed is a TensorBoard run. Everything else in td7 reads the tables.
"""

import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from itertools import count, groupby
from pathlib import Path
from socket import gethostname
from typing import Any

from td7.errors import ControlFlow, InputError, say

WINDOW = 100  # training episodes in a rolling mean, as in Stable-Baselines3
_NUMBERS = count()  # of this process's event files, which TensorBoard reads in the order of names

Columns = Mapping[str, Sequence[float]]  # the rows of one call, by column
# Receives a table's name ("evaluations", "episodes" or "metrics") and its new rows.
Listener = Callable[[str, list[dict[str, float]]], None]


def check_package() -> None:
    """Raise if the package that writes event files is not installed."""
    if find_spec("tensorboard") is None:
        raise InputError("event files need the tensorboard package: pip install 'td7[tensorboard]'")


class ListenerFault(ControlFlow):
    """Carries an exception of the user's callback past the handlers of the run's own errors."""

    def __init__(self, raised: BaseException) -> None:
        super().__init__()
        self.raised = raised


class ListenerQueue:
    """Collects the rows of a run's tables until the run passes them on to the user's callback."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._rows: deque[tuple[str, list[dict[str, float]]]] = deque()

    def __call__(
        self, table: str, columns: Sequence[str], rows: Sequence[Sequence[object]]
    ) -> None:
        named = [dict(zip(columns, map(_number, row), strict=True)) for row in rows]
        self._rows.append((table, named))

    def pass_on(self) -> None:
        """Call the callback with all rows collected so far; raise ListenerFault if it raises."""
        while self._rows:
            try:
                self._listener(*self._rows.popleft())
            except BaseException as raised:
                raise ListenerFault(raised) from raised


def _number(value: object) -> float:
    """Return the number that a reader of the table gets: an int or a float."""
    text = str(value)
    return int(text) if text.lstrip("-").isdigit() else float(text)


class _EventFile:
    """One event file. Unlike TensorBoard's writer it has no thread, whose errors nobody handles."""

    def __init__(self, path: Path, purge_step: int | None) -> None:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._event = Event
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("wb")
        self._records = RecordWriter(self._file)
        self._add(file_version="brain.Event:2")
        if purge_step is not None:
            self._add(step=purge_step, session_log=SessionLog(status=SessionLog.START))

    def _add(self, **content: Any) -> None:
        event = self._event(wall_time=time.time(), **content)
        self._records.write(event.SerializeToString())

    def add(self, scalars: Mapping[str, float], step: int) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items()]
        self._add(step=step, summary=Summary(value=values))
        self._file.flush()

    def close(self) -> None:
        with suppress(OSError):  # of a full disk, again
            self._file.close()


class EventFiles:
    """Writes a run's rows as TensorBoard event files, a folder per seed, as long as that works."""

    def __init__(
        self, folder: Path, steps: Mapping[int, int], warn: Callable[[str], None] = say
    ) -> None:
        """`steps` holds the steps that each seed has made so far.

        TensorBoard hides what an earlier process wrote after the snapshot that the run resumes.
        """
        self._folder = folder
        self._warn = warn
        self._files: dict[int, _EventFile] = {}
        self._episodes: dict[int, deque[tuple[float, float]]] = {
            seed: deque(maxlen=WINDOW) for seed in steps
        }
        self._steps_before = dict(steps)
        self._begin = time.monotonic()
        name = f"events.out.tfevents.{int(time.time()):010d}.{gethostname()}.{os.getpid()}"
        with self._until_an_error():
            for seed, done in steps.items():
                file = folder / f"seed-{seed}" / f"{name}.{next(_NUMBERS):06}"
                self._files[seed] = _EventFile(file, done + 1 if done else None)

    @contextmanager
    def _until_an_error(self) -> Iterator[None]:
        """A disk that is full ends the event files, but not the run."""
        try:
            yield
        except OSError as error:
            self.close()
            self._files = {}
            problem = f"{self._folder} cannot be written: {error.strerror or error}"
            self._warn(f"{problem}; the run continues without event files")

    def __call__(
        self, table: str, columns: Sequence[str], rows: Sequence[Sequence[object]]
    ) -> None:
        """Write the new rows of a table, those of each seed together and of one step."""
        numbers = [[float(str(value)) for value in row] for row in rows]
        scalars_of = {
            "evaluations": _evaluation_scalars,
            "episodes": self._episode_scalars,
            "metrics": _metric_scalars,
        }[table]
        with self._until_an_error():
            for seed, own in groupby(numbers, key=lambda row: int(row[0])):
                values = dict(zip(columns, zip(*own, strict=True), strict=True))
                if seed in self._files:
                    self._files[seed].add(scalars_of(values), int(values["step"][-1]))

    def _episode_scalars(self, rows: Columns) -> dict[str, float]:
        seed = int(rows["seed"][-1])
        recent = self._episodes[seed]
        recent.extend(zip(rows["return"], rows["length"], strict=True))
        steps = rows["step"][-1] - self._steps_before[seed]
        returns, lengths = zip(*recent, strict=True)
        return {
            "rollout/ep_rew_mean": _mean(returns),
            "rollout/ep_len_mean": _mean(lengths),
            "time/fps": steps / max(1e-9, time.monotonic() - self._begin),
        }

    def close(self) -> None:
        for file in self._files.values():
            file.close()


def _evaluation_scalars(rows: Columns) -> dict[str, float]:
    names = {"return": "mean_reward", "length": "mean_ep_length", "score": "mean_score"}
    return {f"eval/{tag}": _mean(rows[name]) for name, tag in names.items() if name in rows}


def _metric_scalars(rows: Columns) -> dict[str, float]:
    names = {"update": "n_updates"}
    return {
        f"train/{names.get(name, name)}": values[-1]
        for name, values in rows.items()
        if name not in ("seed", "step")
    }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)

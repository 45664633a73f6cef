"""TensorBoard's event files. Every member is a TensorBoard run."""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from socket import gethostname
from typing import Any

from td7.errors import say
from td7.runs.loggers.scalars import Point
from td7.runs.members import Members

_NUMBERS = count()  # of this process's event files, which TensorBoard reads in the order of names


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

    def add_values(self, values: Mapping[str, float]) -> None:
        """Note what tells this run apart, for TensorBoard's table of hyperparameters."""
        from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
        from tensorboard.plugins.hparams import metadata
        from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

        data = HParamsPluginData(version=metadata.PLUGIN_DATA_VERSION)
        for name, value in values.items():
            data.session_start_info.hparams[name].number_value = value
        plugin = SummaryMetadata.PluginData(
            plugin_name=metadata.PLUGIN_NAME, content=data.SerializeToString()
        )
        value = Summary.Value(
            tag=metadata.SESSION_START_INFO_TAG,
            metadata=SummaryMetadata(plugin_data=plugin),
            tensor=metadata.NULL_TENSOR,
        )
        self._add(step=0, summary=Summary(value=[value]))
        self._file.flush()

    def close(self) -> None:
        with suppress(OSError):  # of a full disk, again
            self._file.close()


class EventFiles:
    """Writes points to TensorBoard's event files, a folder per member, as long as that works."""

    def __init__(
        self,
        folder: Path,
        steps: Mapping[int, int],
        warn: Callable[[str], None] = say,
        members: Members | None = None,
    ) -> None:
        """`steps` holds the steps that each member has made so far; without `members`, by seed.

        TensorBoard hides what an earlier process wrote after the snapshot that the run resumes.
        """
        self._folder = folder
        self._steps = steps
        self._warn = warn
        self._members = members or Members(tuple(steps))
        self._files: dict[int, _EventFile] = {}

    def __enter__(self) -> "EventFiles":
        name = f"events.out.tfevents.{int(time.time()):010d}.{gethostname()}.{os.getpid()}"
        with self._until_an_error():
            for id, done in self._steps.items():
                file = self._folder / f"{self._members.kind}-{id}" / f"{name}.{next(_NUMBERS):06}"
                self._files[id] = _EventFile(file, done + 1 if done else None)
                if self._members.numbers and not done:
                    m = self._members.ids.index(id)
                    self._files[id].add_values(
                        {"seed": self._members.seeds[m], **self._members.values(m)}
                    )
        return self

    @contextmanager
    def _until_an_error(self) -> Iterator[None]:
        """A disk that is full ends the event files, but not the run."""
        try:
            yield
        except OSError as error:
            self._close()
            problem = f"{self._folder} cannot be written: {error.strerror or error}"
            self._warn(f"{problem}; the run continues without event files")

    def log(self, point: Point) -> None:
        with self._until_an_error():
            if point.id in self._files:
                self._files[point.id].add(point.scalars, point.step)

    def __exit__(self, *outcome: object) -> None:
        self._close()

    def _close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files = {}

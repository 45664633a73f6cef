"""Who receives a run's new rows besides its tables: TensorBoard's event files and callbacks.

The event files use the tags of Stable-Baselines3, so that TensorBoard can show runs of both side by
side; every seed is a TensorBoard run. Everything else in td7 reads the tables.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path

from td7.errors import ControlFlow, InputError

WINDOW = 100  # training episodes in a rolling mean, as in Stable-Baselines3
FLUSH_SECONDS = 10  # between writes of the event files

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


class EventFiles:
    """Writes a run's rows as TensorBoard event files, a folder per seed."""

    def __init__(self, folder: Path, steps: Mapping[int, int]) -> None:
        """`steps` holds the steps that each seed has made so far.

        TensorBoard hides what an earlier process wrote after the snapshot that the run resumes.
        """
        from torch.utils.tensorboard import SummaryWriter

        self._writers = {
            seed: SummaryWriter(
                str(folder / f"seed-{seed}"),
                purge_step=done + 1 if done else None,
                flush_secs=FLUSH_SECONDS,
            )
            for seed, done in steps.items()
        }
        self._episodes: dict[int, deque[tuple[float, float]]] = {
            seed: deque(maxlen=WINDOW) for seed in steps
        }
        self._steps_before = dict(steps)
        self._begin = time.monotonic()

    def __call__(
        self, table: str, columns: Sequence[str], rows: Sequence[Sequence[object]]
    ) -> None:
        """Write the new rows of a table, those of each seed for its last step."""
        numbers = [[float(str(value)) for value in row] for row in rows]
        for _, group in groupby(numbers, key=lambda row: row[0]):
            self._write(table, dict(zip(columns, zip(*group, strict=True), strict=True)))

    def _write(self, table: str, values: Columns) -> None:
        """Write the rows of one seed and step."""
        seed, step = int(values["seed"][-1]), int(values["step"][-1])
        scalars_of = {
            "evaluations": _evaluation_scalars,
            "episodes": self._episode_scalars,
            "metrics": _metric_scalars,
        }[table]
        for tag, value in scalars_of(values).items():
            self._writers[seed].add_scalar(tag, value, step)

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
        for writer in self._writers.values():
            writer.close()


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

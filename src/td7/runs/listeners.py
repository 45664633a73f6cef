"""Who is told of a run's rows as they come: TensorBoard's event files, and a caller's function.

The tags of event files are those of Stable-Baselines3, so that both can be looked at together;
every seed is a run of its own. The tables stay what everything else reads.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from td7.errors import InputError

WINDOW = 100  # training episodes that a rolling mean is of, as in Stable-Baselines3
FLUSH = 10  # seconds until what was written can be seen

Columns = Mapping[str, Sequence[float]]  # of the rows that a table got at once
# Receives a table's name ("evaluations", "episodes" or "metrics") and its new rows.
Listener = Callable[[str, list[dict[str, float]]], None]


def check_package() -> None:
    """Raises where event files cannot be written."""
    if find_spec("tensorboard") is None:
        raise InputError("TensorBoard's files need its package: pip install 'td7[tensorboard]'")


class ListenerFault(BaseException):
    """What a caller's function raised, on its way past all that handles faults of the run's own."""

    def __init__(self, raised: BaseException) -> None:
        super().__init__()
        self.raised = raised


class ListenerQueue:
    """A listener to a run's tables that keeps their rows until the run can pass them on."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._rows: deque[tuple[str, list[dict[str, float]]]] = deque()

    def __call__(
        self, table: str, columns: Sequence[str], rows: Sequence[Sequence[object]]
    ) -> None:
        named = [dict(zip(columns, map(_number, row), strict=True)) for row in rows]
        self._rows.append((table, named))

    def pass_on(self) -> None:
        while self._rows:
            try:
                self._listener(*self._rows.popleft())
            except BaseException as raised:
                raise ListenerFault(raised) from raised


def _number(value: object) -> float:
    """As it is read from the table's file: whole numbers are ints."""
    text = str(value)
    return int(text) if text.lstrip("-").isdigit() else float(text)


class EventFiles:
    """A listener to a run's tables; `steps` has every seed, and the steps that it has made."""

    def __init__(self, folder: Path, steps: Mapping[int, int]) -> None:
        from torch.utils.tensorboard import SummaryWriter

        # What an earlier process wrote past the snapshot that the run goes on from is hidden.
        self._writers = {
            seed: SummaryWriter(
                str(folder / f"seed-{seed}"),
                purge_step=done + 1 if done else None,
                flush_secs=FLUSH,
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
        """Rows of one seed and step, which a table got just now."""
        numbers = [[float(str(value)) for value in row] for row in rows]
        if not numbers:
            return
        found = dict(zip(columns, zip(*numbers, strict=True), strict=True))
        seed, step = int(found["seed"][-1]), int(found["step"][-1])
        scalars = {
            "evaluations": self._evaluation,
            "episodes": self._episode,
            "metrics": _metrics,
        }[table]
        for tag, value in scalars(found).items():
            self._writers[seed].add_scalar(tag, value, step)

    def _evaluation(self, rows: Columns) -> dict[str, float]:
        names = {"return": "mean_reward", "length": "mean_ep_length", "score": "mean_score"}
        return {f"eval/{tag}": _mean(rows[name]) for name, tag in names.items() if name in rows}

    def _episode(self, rows: Columns) -> dict[str, float]:
        seed = int(rows["seed"][-1])
        recent = self._episodes[seed]
        recent.extend(zip(rows["return"], rows["length"], strict=True))
        made = rows["step"][-1] - self._steps_before[seed]
        returns, lengths = zip(*recent, strict=True)
        return {
            "rollout/ep_rew_mean": _mean(returns),
            "rollout/ep_len_mean": _mean(lengths),
            "time/fps": made / max(1e-9, time.monotonic() - self._begin),
        }

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()


def _metrics(rows: Columns) -> dict[str, float]:
    names = {"update": "n_updates"}
    return {
        f"train/{names.get(name, name)}": values[-1]
        for name, values in rows.items()
        if name not in ("seed", "step")
    }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)

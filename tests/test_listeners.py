"""TensorBoard's event files and the caller's function receive the rows of the tables."""

import os
import signal
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import td7
import toys
from folders import SMALL, results
from td7.errors import InputError, RunError
from td7.runs.loggers.scalars import Scalars
from td7.runs.loggers.tensorboard import EventFiles
from td7.runs.snapshots import has_snapshot

assert toys  # registers the tasks
pytestmark = pytest.mark.usefixtures("loaded_children")
Logged = dict[str, dict[int, float]]  # tag: step: value
GIVEN: dict[str, Any] = {
    "env": "toys:Point-v0",
    "seeds": "0,4",
    "evaluate_every": 40,
    "evaluation_episodes": 3,
    "metrics_every": 10,
    "quiet": True,
}


def scalars(folder: Path) -> Logged:
    found = EventAccumulator(str(folder))
    found.Reload()
    return {
        tag: {event.step: event.value for event in found.Scalars(tag)}
        for tag in found.Tags()["scalars"]
    }


@pytest.mark.parametrize("checkpoints", ["minimum", "none"])
def test_they_are_the_tables(tmp_path: Path, checkpoints: str) -> None:
    settings = {**SMALL, "checkpoints": checkpoints}
    run = td7.train(**GIVEN, steps=120, set=settings, tensorboard=True, out=str(tmp_path / "run"))
    for seed in (0, 4):
        received = scalars(run.path / "tensorboard" / f"seed-{seed}")
        own = run.evaluations.query(f"seed == {seed}").groupby("step")
        assert received["eval/mean_reward"] == pytest.approx(own["return"].mean().to_dict())
        assert received["eval/mean_ep_length"] == pytest.approx(own["length"].mean().to_dict())
        episodes = run.episodes.query(f"seed == {seed}").set_index("step")
        rolling = episodes["return"].expanding().mean().to_dict()  # fewer than a hundred
        assert received["rollout/ep_rew_mean"] == pytest.approx(rolling)
        assert set(received["time/fps"]) == set(rolling)
        assert min(received["time/fps"].values()) > 0
        last = run.metrics.query(f"seed == {seed}").groupby("step").last()
        for name in ("critic_loss", "actor_loss", "value"):
            assert received[f"train/{name}"] == pytest.approx(last[name].to_dict())
        assert received["train/n_updates"] == last["update"].to_dict()
    plain = td7.train(**GIVEN, steps=120, set=settings, out=str(tmp_path / "plain"))
    assert results(run.path) == results(plain.path)  # they change nothing
    assert not (plain.path / "tensorboard").exists()


def test_a_resumed_run_continues_its_event_files(tmp_path: Path) -> None:
    run = td7.train(**GIVEN, steps=80, set=SMALL, tensorboard=True, out=str(tmp_path / "run"))
    td7.resume(run, steps=160, quiet=True)
    received = scalars(run.path / "tensorboard" / "seed-0")
    own = run.evaluations.query("seed == 0").groupby("step")["return"].mean().to_dict()
    assert received["eval/mean_reward"] == pytest.approx(own)
    episodes = run.episodes.query("seed == 0").set_index("step")
    rolling = episodes["return"].expanding().mean().to_dict()  # also of episodes before the resume
    assert received["rollout/ep_rew_mean"] == pytest.approx(rolling)


def test_values_after_the_snapshot_are_hidden(tmp_path: Path) -> None:
    """By hand: a process reached step 60, the next one resumes from step 20."""
    columns = ("seed", "step", "episode", "return", "length")
    points = Scalars({3: 0}).points
    with EventFiles(tmp_path, {3: 0}) as first:
        for step, value in ((20, 1.0), (40, 2.0), (60, 3.0)):
            for point in points("episodes", columns, [(3, step, 0, repr(value), 20)]):
                first.log(point)
    assert scalars(tmp_path / "seed-3")["rollout/ep_rew_mean"] == {20: 1.0, 40: 1.5, 60: 2.0}
    with EventFiles(tmp_path, {3: 20}) as second:
        (point,) = Scalars({3: 20}).points("episodes", columns, [(3, 40, 0, repr(7.0), 20)])
        second.log(point)
    assert scalars(tmp_path / "seed-3")["rollout/ep_rew_mean"] == {20: 1.0, 40: 7.0}


class Recorder(list[tuple[str, dict[str, float]]]):
    """A listener that keeps all rows; at the evaluation of step `at` it raises or sends SIGTERM.

    An empty list is false, so it also shows that listeners are compared with None.
    """

    def __init__(self, at: int = -1, fault: BaseException | None = None) -> None:
        super().__init__()
        self._at = at
        self._fault = fault

    def __call__(self, table: str, rows: list[dict[str, float]]) -> None:
        self.extend((table, row) for row in rows)
        if table == "evaluations" and rows[0]["step"] == self._at:
            if self._fault is not None:
                raise self._fault
            os.kill(os.getpid(), signal.SIGTERM)

    def check(self, run: td7.Run) -> None:
        """Compare with the tables: every row once."""
        for name in ("evaluations", "episodes", "metrics"):
            found, received = (
                getattr(run, name),
                pd.DataFrame([r for table, r in self if table == name]),
            )
            by = [*found.columns[:3]]
            pd.testing.assert_frame_equal(
                received.sort_values(by, ignore_index=True),
                found.sort_values(by, ignore_index=True),
            )


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, bytes]]:
    """The results of a run without a listener, with checkpoints by this criterion."""

    @cache
    def train(checkpoints: str) -> dict[str, bytes]:
        settings = {**SMALL, "checkpoints": checkpoints}
        path = tmp_path_factory.mktemp("plain") / "run"
        return results(td7.train(**GIVEN, steps=120, set=settings, out=str(path)).path)

    return train


@pytest.mark.parametrize("checkpoints", ["minimum", "none"])
def test_a_listener_receives_the_rows_of_the_tables(
    tmp_path: Path, checkpoints: str, plain: Callable[[str], dict[str, bytes]]
) -> None:
    settings = {**SMALL, "checkpoints": checkpoints}
    recorder = Recorder()
    run = td7.train(**GIVEN, steps=120, set=settings, out=str(tmp_path / "run"), listener=recorder)
    recorder.check(run)
    assert results(run.path) == plain(checkpoints)


FAULTS = [
    ConnectionError("no network"),
    RunError("of a run of its own", "details"),
    td7.Stopped(signal.SIGTERM, Path()),
    KeyboardInterrupt(),
]


@pytest.mark.parametrize("checkpoints", ["minimum", "none"])
@pytest.mark.parametrize("fault", FAULTS, ids=[type(fault).__name__ for fault in FAULTS])
@pytest.mark.parametrize("at", [0, 40, 120])
def test_what_a_listener_raises_ends_the_run(
    tmp_path: Path,
    at: int,
    fault: BaseException,
    checkpoints: str,
    plain: Callable[[str], dict[str, bytes]],
) -> None:
    """The exception is unchanged, the listener gets no more calls, and no row is lost."""
    settings, path = {**SMALL, "checkpoints": checkpoints}, tmp_path / "run"
    recorder = Recorder(at, fault)
    with pytest.raises(type(fault)) as caught:
        td7.train(**GIVEN, steps=120, set=settings, out=str(path), listener=recorder)
    assert caught.value is fault
    assert recorder[-1][0] == "evaluations"
    assert recorder[-1][1]["step"] == at
    assert not (path / "error.txt").exists()
    run = td7.resume(path, quiet=True)
    assert results(run.path) == plain(checkpoints)


def test_a_second_signal_in_a_listener_stops_without_a_snapshot(tmp_path: Path) -> None:
    """After the first signal a run saves; the second one interrupts a listener that hangs."""
    path = tmp_path / "run"

    def hang(table: str, rows: list[dict[str, float]]) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        raise KeyboardInterrupt  # of the second time

    with pytest.raises(KeyboardInterrupt):
        td7.train(**GIVEN, steps=120, set=SMALL, out=str(path), listener=hang)
    assert not has_snapshot(path)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("checkpoints", ["minimum", "none"])
def test_a_stopped_run_passes_all_rows_on(tmp_path: Path, checkpoints: str, workers: int) -> None:
    settings, path = {**SMALL, "checkpoints": checkpoints}, tmp_path / "run"
    first, second = Recorder(at=40), Recorder()
    given = {**GIVEN, "metrics_every": 1, "workers": workers}
    with pytest.raises(td7.Stopped):
        td7.train(**given, steps=120, set=settings, out=str(path), listener=first)
    run = td7.resume(path, quiet=True, listener=second)
    first.extend(second)
    first.check(run)


def test_a_failing_environment_hides_no_rows(tmp_path: Path) -> None:
    """Rows saved before the failure reach the listener."""
    recorder, path, cold = Recorder(), tmp_path / "run", tmp_path / "cold"
    cold.touch()
    given = {**GIVEN, "env_kwargs": {"fault": str(cold)}, "metrics_every": 1}
    with pytest.raises(RunError, match="motor is cold"):
        td7.train(
            **given,
            steps=400,
            set={**SMALL, "checkpoints": "none"},
            out=str(path),
            listener=recorder,
        )
    recorder.check(td7.Run(path))


def test_a_listener_is_a_function(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with pytest.raises(InputError, match=r"listener must be a function .* given a str"):
        td7.train(**GIVEN, steps=80, set=SMALL, out=str(out), listener="wandb")  # type: ignore[arg-type]
    assert not out.exists()


def test_a_run_that_a_listener_stopped_is_evaluated_as_it_was(tmp_path: Path) -> None:
    """Its last evaluation is repeated, also of a seed that is ahead of the others or was kept."""
    path = tmp_path / "run"

    def enough(table: str, rows: list[dict[str, Any]]) -> None:
        if table == "evaluations" and any(row["step"] == 80 for row in rows):
            raise StopIteration

    given: dict[str, Any] = {**GIVEN, "set": SMALL, "steps": 400, "keep_policies": 40}
    with pytest.raises(StopIteration):
        td7.train(**given, out=str(path), listener=enough)
    found = td7.Run(path).evaluations
    steps = found.groupby("seed")["step"].max()
    last = dict(zip(steps.index.tolist(), steps.tolist(), strict=True))
    for seed, step in last.items():
        expected = found.query(f"seed == {seed} and step == {step}")["return"]
        kept_again = td7.evaluate(path / "policies" / str(step), seed=seed, episodes=3)
        assert kept_again["return"].tolist() == expected.tolist()
    behind, ahead = sorted(last, key=lambda seed: last[seed])
    assert last[behind] < last[ahead] == 80
    now, kept = (td7.load(where, ahead).flat for where in (path, path / "policies" / "80"))
    assert now.tolist() == kept.tolist()  # it was stopped at once
    again = td7.evaluate(path, seed=ahead, episodes=3)["return"]
    assert again.tolist() == found.query(f"seed == {ahead} and step == 80")["return"].tolist()
    with pytest.raises(
        InputError, match=f"has no policy of seed {behind}, which was stopped before that step"
    ):
        td7.evaluate(path / "policies" / "80", seed=behind)


class Events(list[tuple[Any, ...]]):
    """A listener that notes its calls, and raises at one of them."""

    def __init__(self, faulty: str = "") -> None:
        super().__init__()
        self._faulty = faulty

    def _note(self, *call: Any) -> None:
        self.append(call)
        if call[0] == self._faulty:
            raise ConnectionError("no network")

    def started(self, path: Path) -> None:
        self._note("started", path, td7.Run(path).config["steps"])

    def __call__(self, table: str, rows: list[dict[str, float]]) -> None:
        self._note(table, rows[0]["step"])

    def ended(self, path: Path, error: BaseException | None) -> None:
        self._note("ended", path, type(error))


def train_to(path: Path, listener: Events, **options: Any) -> td7.Run:
    given = {**GIVEN, "steps": 80, "set": SMALL, "out": str(path), **options}
    return td7.train(**given, listener=listener)


@pytest.mark.parametrize("processes", [1, 2])
def test_a_listener_learns_when_a_run_starts_and_ends(tmp_path: Path, processes: int) -> None:
    """Once per training, before and after all rows, also when the run is resumed."""
    path, events = tmp_path / "run", Events()
    train_to(path, events, processes=processes)
    td7.resume(path, steps=120, quiet=True, listener=events)
    bounds = [i for i, (name, *_) in enumerate(events) if name in ("started", "ended")]
    assert [events[i] for i in bounds] == [
        ("started", path, 80),
        ("ended", path, type(None)),
        ("started", path, 120),
        ("ended", path, type(None)),
    ]
    first, end, start, last = bounds
    assert (first, start, last) == (0, end + 1, len(events) - 1)
    assert max(step for name, step, *_ in events[1:end] if name == "evaluations") == 80
    assert max(step for name, step, *_ in events[start:last] if name == "evaluations") == 120


def test_it_learns_what_ended_a_run(tmp_path: Path) -> None:
    class Stopping(Events):
        def __call__(self, table: str, rows: list[dict[str, float]]) -> None:
            super().__call__(table, rows)
            if rows[0]["step"] == 40:
                os.kill(os.getpid(), signal.SIGTERM)

    stopping, failing = Stopping(), Events()
    with pytest.raises(td7.Stopped):
        train_to(tmp_path / "stopped", stopping)
    assert stopping[-1] == ("ended", tmp_path / "stopped", td7.Stopped)
    with pytest.raises(RunError, match="motor"):
        train_to(tmp_path / "failed", failing, env_kwargs={"fault": "raise"})
    assert issubclass(failing[-1][2], RunError)


@pytest.mark.parametrize("faulty", ["started", "evaluations"])
@pytest.mark.parametrize("processes", [1, 2])
def test_a_listener_that_raised_is_not_called_again(
    tmp_path: Path, faulty: str, processes: int
) -> None:
    path, events = tmp_path / "run", Events(faulty)
    with pytest.raises(ConnectionError):
        train_to(path, events, processes=processes)
    assert events[-1][0] == faulty
    td7.resume(path, quiet=True)


def test_a_listener_that_raises_after_the_end_warns(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = train_to(tmp_path / "run", Events("ended"))
    (warning,) = capfd.readouterr().err.splitlines()
    assert warning.startswith("the listener raised ConnectionError at test_listeners.py:")
    assert (run.path / "finished.json").exists()

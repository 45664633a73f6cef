"""A run that is killed, stopped or crashes, at any moment, and resumed is the run that was not."""

import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import td7
import toys
from folders import SMALL, TABLES, contents, differences, newest, words
from td7.cli.main import main
from td7.files import write_json
from td7.studies.rows import STUDIES
from td7.training.loop import Loop
from td7.training.loops import loop_for
from td7.training.parts import RunSetup
from td7.training.signals import REPEAT_SECONDS

assert toys  # registers the tasks
STEPS = 100
PATIENCE = 60.0  # seconds that anything may take on a busy machine

# Real processes, forked from one that has PyTorch loaded: they start in no time.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(
    [
        *("torch._dynamo", "pandas", "matplotlib.figure", "pytest", "test_resume"),
        *("td7.training.start", "td7.report.curves", "td7.studies.run"),
    ]
)


def run_td7(arguments: Sequence[str], output: Path, disk: float) -> None:
    """The command line in a process of its own; `disk` is how many seconds an fsync takes."""
    os.setpgid(0, 0)
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)
    if disk:
        sync = os.fsync

        def slow(descriptor: int) -> None:
            time.sleep(disk)
            sync(descriptor)

        os.fsync = slow  # type: ignore[assignment]
    raise SystemExit(main(arguments))


class Runner:
    """Starts `td7` on one run folder, again and again."""

    def __init__(
        self, folder: Path, algorithm: str = "td7", options: Sequence[str] = (), **settings: object
    ) -> None:
        self.path = folder / "run"
        self._train = [*train_words(self.path, algorithm, **settings), *options]
        self._output = folder / "output"
        self.processes: list[BaseProcess] = []

    def start(self, *options: str, disk: float = 0.0) -> BaseProcess:
        """`td7 train`, or `td7 resume` where the folder holds a run."""
        has_begun = (self.path / "config.json").exists()
        command = ["resume", str(self.path)] if has_begun else self._train
        arguments = ([*command, "--quiet", *options], self._output, disk)
        process = PROCESSES.Process(target=run_td7, args=arguments)
        process.start()
        self.processes.append(process)
        return process

    def finish(self, *options: str) -> None:
        assert ended(self.start(*options)) == 0, self.said()

    def said(self) -> str:
        return self._output.read_text()

    def snapshots(self) -> list[str]:
        return folder_names(self.path / "snapshot")

    def number(self) -> int:
        """Of the newest snapshot."""
        return max([int(name) for name in self.snapshots() if name.isdigit()], default=0)

    def rows(self) -> int:
        """Lines of all tables so far: how far the run has come."""
        tables = [self.path / name for name in TABLES]
        return sum(len(t.read_bytes().splitlines()) for t in tables if t.exists())


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Runner]:
    runner = Runner(tmp_path)
    yield runner
    for process in runner.processes:
        process.kill()
        process.join()


def train_words(path: Path, algorithm: str = "td7", **settings: object) -> list[str]:
    given = ["--env", "toys:Point-v0", "--steps", str(STEPS), "--seeds", "0-1", "--out", str(path)]
    often = ["--evaluate-every", "25", "--evaluation-episodes", "2", "--metrics-every", "20"]
    return ["train", algorithm, *given, *often, "--set", *words(settings or SMALL)]


def folder_names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def ended(process: BaseProcess) -> int | None:
    process.join(PATIENCE)
    return process.exitcode


def wait_until(condition: Callable[[], object], process: BaseProcess) -> bool:
    """Whether the condition came true before the process ended."""
    deadline = time.monotonic() + PATIENCE
    while process.is_alive():
        if condition():
            return True
        assert time.monotonic() < deadline, "neither came true nor ended"
        time.sleep(0.0005)
    return False


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("uninterrupted") / "run"
    assert main([*train_words(path), "--quiet"]) == 0
    return path


@pytest.fixture(scope="module")
def uninterrupted(finished: Path) -> dict[str, Any]:
    found = contents(finished)
    assert found["members"]["members"][0]["steps"] > STEPS - 20
    return found


# Killed


def test_killed_again_and_again_at_random_moments(
    runner: Runner, uninterrupted: dict[str, Any]
) -> None:
    check_kills(runner, uninterrupted, 1)


ENTROPY = {"random_steps": 30, "actor_hidden_dim": 8, "critic_hidden_dim": 8, "batch_size": 16}
TWIN = {"random_steps": 30, "hidden_dim": 8, "batch_size": 16}


@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [
        ("td7", {**SMALL, "checkpoints": "none"}),
        ("td3", TWIN),
        ("td3+ofe", {**TWIN, "ofe_features": 12}),
        ("sac", {**ENTROPY, "sale": True}),
        ("tqc", ENTROPY),
    ],
)
def test_killed_again_and_again_in_lockstep(
    tmp_path: Path, algorithm: str, settings: dict[str, Any]
) -> None:
    """Without checkpoints, in the middle of episodes; stepping in this process and in others."""
    path = tmp_path / "uninterrupted"
    assert main([*train_words(path, algorithm, **settings), "--quiet"]) == 0
    runner = Runner(tmp_path, algorithm, **settings)
    check_kills(runner, contents(path), 3)
    for process in runner.processes:
        process.kill()


def check_kills(runner: Runner, uninterrupted: dict[str, Any], most_workers: int) -> None:
    random = np.random.default_rng(0)
    kills = 0
    process = runner.start("--snapshot-every", "0.002")
    for _ in range(6):
        # Some way further than the last snapshot, then a moment more.
        begin, further = runner.rows(), random.integers(1, 8)
        if not wait_until(lambda b=begin, f=further: runner.rows() >= b + f, process):  # type: ignore[misc]
            break
        process.join(random.uniform(0.0, 0.1))
        process.kill()
        if ended(process) == 0:
            break
        assert process.exitcode == -signal.SIGKILL
        kills += 1
        workers = str(random.integers(most_workers + 1))
        process = runner.start("--snapshot-every", "0.002", "--workers", workers)
    assert ended(process) == 0, runner.said()
    assert kills >= 2
    assert differences(contents(runner.path), uninterrupted) == []


def test_killed_in_the_middle_of_writing_snapshots(
    runner: Runner, uninterrupted: dict[str, Any]
) -> None:
    """On a slow disk, with a snapshot at every turn, a kill falls into one."""
    random = np.random.default_rng(1)
    half_written = []

    def is_writing() -> bool:
        return any(name.endswith(".tmp") for name in runner.snapshots())

    for _ in range(4):
        process = runner.start("--snapshot-every", "0.00001", disk=0.003)
        # A few good ones each time, so that the run gets on.
        enough = runner.number() + int(random.integers(1, 4))
        wait_until(lambda n=enough: runner.number() >= n, process)  # type: ignore[misc]
        wait_until(is_writing, process)
        process.kill()
        if ended(process) == 0:
            break
        half_written.append(is_writing())
    assert sum(half_written) >= 2
    runner.finish()
    assert not is_writing()  # the next save cleaned up
    assert differences(contents(runner.path), uninterrupted) == []


def test_killed_before_the_first_snapshot_starts_over(
    runner: Runner, uninterrupted: dict[str, Any]
) -> None:
    process = runner.start("--snapshot-every", "0")
    assert wait_until(lambda: runner.rows() > 14, process)
    process.kill()
    assert ended(process) == -signal.SIGKILL
    assert runner.snapshots() == []
    runner.finish()
    assert differences(contents(runner.path), uninterrupted) == []


def test_a_folder_as_it_was_at_any_moment_can_be_resumed(
    tmp_path: Path, uninterrupted: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copies made while a run writes its files are what a kill at that moment leaves."""
    path = tmp_path / "run"
    chosen = set(np.random.default_rng(2).choice(200, 7, replace=False).tolist())
    copies: list[Path] = []
    calls = [0]
    sync = os.fsync

    def copy(descriptor: int) -> None:
        calls[0] += 1
        if calls[0] in chosen:
            copies.append(tmp_path / f"copy-{calls[0]}")
            shutil.copytree(path, copies[-1])
        sync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", copy)
        assert main([*train_words(path), "--quiet", "--snapshot-every", "0.0001"]) == 0
    assert len(copies) == 7
    assert differences(contents(path), uninterrupted) == []
    assert any(list(copied.rglob(".*.tmp")) for copied in copies)
    for copied in copies:
        td7.resume(copied, quiet=True, snapshot_every=0)
        assert differences(contents(copied), uninterrupted) == [], copied


# Stopped


@pytest.mark.parametrize(("signum", "workers"), [(signal.SIGTERM, 0), (signal.SIGINT, 2)])
def test_stopped_by_a_signal(
    runner: Runner, uninterrupted: dict[str, Any], signum: signal.Signals, workers: int
) -> None:
    process = runner.start("--workers", str(workers))
    assert wait_until(lambda: runner.rows() > 14, process)
    assert process.pid is not None
    os.killpg(process.pid, signum)  # as a terminal and `timeout` do: the workers get it too
    assert ended(process) == 128 + signum
    (line,) = runner.said().splitlines()
    command = f"td7 resume {runner.path}"
    assert line == f"td7: stopped by {signum.name}; continue it exactly with `{command}`"
    assert "000001" in runner.snapshots()
    members = json.loads((newest(runner.path) / "members.json").read_text())
    # In the middle of the run; with workers, either seed may be ahead of the other.
    assert 0 < sum(member["steps"] for member in members["members"]) < 2 * STEPS
    runner.finish("--workers", str(workers))
    assert differences(contents(runner.path), uninterrupted) == []


def test_the_real_thing(
    tmp_path: Path, uninterrupted: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """`python -m td7`, stopped while it talks; resumed, it shows what came of it."""
    path = tmp_path / "run"
    command = [sys.executable, "-m", "td7", *train_words(path)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + PATIENCE
    table = path / "metrics.csv"
    while not table.exists() or len(table.read_text().splitlines()) < 2:
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.001)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    first, second, third = err.splitlines()
    assert first.startswith("td7 on toys:Point-v0")
    assert second.startswith("stopping: writing a snapshot")
    assert third == f"td7: stopped by SIGINT; continue it exactly with `td7 resume {path}`"
    assert out == ""
    assert main(["resume", str(path)]) == 0
    assert "mean return of an evaluation" in capsys.readouterr().out
    assert (path / "learning_curve.png").stat().st_size > 1_000
    assert differences(contents(path), uninterrupted) == []


def test_a_second_signal_stops_at_once(runner: Runner, uninterrupted: dict[str, Any]) -> None:
    process = runner.start(disk=0.3)  # a snapshot takes a while
    assert wait_until(lambda: runner.rows() > 14, process)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGINT)
    later = time.monotonic() + 1.2 * REPEAT_SECONDS
    assert wait_until(lambda: any(n.endswith(".tmp") for n in runner.snapshots()), process)
    assert wait_until(lambda: time.monotonic() > later, process)
    os.kill(process.pid, signal.SIGINT)
    assert ended(process) == 130
    assert runner.said() == "td7: interrupted\n"
    assert not any(name.isdigit() for name in runner.snapshots())
    runner.finish()
    assert differences(contents(runner.path), uninterrupted) == []


def test_two_signals_at_once_are_one(runner: Runner) -> None:
    """`timeout` signals a process and then its group, the process among them."""
    process = runner.start(disk=0.05)
    assert wait_until(lambda: runner.rows() > 14, process)
    assert process.pid is not None
    for signum in (signal.SIGTERM, signal.SIGINT):  # two of a kind might arrive as one
        os.kill(process.pid, signum)
    assert ended(process) in (128 + signal.SIGTERM, 128 + signal.SIGINT)
    assert "000001" in runner.snapshots()


# What resuming refuses


@pytest.fixture
def stopped(tmp_path: Path, half: Path) -> Path:
    """A run that has a snapshot and has not ended."""
    path = tmp_path / "stopped"
    shutil.copytree(half, path)
    return path


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("half") / "run"
    assert main([*train_words(path), "--quiet", "--steps", "60"]) == 0
    return path


def refused(words: Sequence[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line that a command with exit status 2 says."""
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    assert line.startswith("td7: ")
    return line


def files(path: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def edit(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    config = json.loads((path / "config.json").read_text())
    change(config)
    (path / "config.json").write_text(json.dumps(config))


def change_both(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """The config of a run as if it had been so from the beginning: in its snapshot, too."""
    edit(path, change)
    snapshot = newest(path)
    members = json.loads((snapshot / "members.json").read_text())
    change(members["config"])
    manifest = json.loads((snapshot / "manifest.json").read_text())
    seal = write_json(snapshot / "members.json", members)
    manifest["files"][f"{snapshot.name}/members.json"] = seal._asdict()
    write_json(snapshot / "manifest.json", manifest)


CHANGES: list[tuple[Callable[[dict[str, Any]], None], str]] = [
    (lambda c: c["hyperparameters"].update(batch_size=32), "hyperparameters.batch_size is 16"),
    (lambda c: c["hyperparameters"].update(hidden_dim=8), "hyperparameters.hidden_dim is 16"),
    (lambda c: c["hyperparameters"].pop("embedding_dim"), "hyperparameters.embedding_dim is 8"),
    (lambda c: c.update(seeds=[0, 1, 2]), "seeds is [0, 1], given (0, 1, 2)"),
    (lambda c: c.update(seeds=[1, 0]), "seeds is [0, 1], given (1, 0)"),
    (lambda c: c.update(precision="float64"), "precision is 'float32', given 'float64'"),
    (lambda c: c.update(evaluate_every=50), "evaluate_every is 25, given 50"),
    (lambda c: c.update(evaluation_episodes=3), "evaluation_episodes is 2, given 3"),
    (lambda c: c.update(metrics_every=5), "metrics_every is 20, given 5"),
    (lambda c: c["task"]["kwargs"].update(at=9), "task.kwargs.at is None, given 9"),
    (lambda c: c["task"].update(id="toys:Count-v0"), "task.id is 'toys:Point-v0'"),
    (lambda c: c.update(steps=50), "steps=60 already; steps can only grow, given 50"),
]


@pytest.mark.parametrize(("change", "told"), CHANGES)
def test_a_config_that_was_edited_is_refused(
    stopped: Path,
    change: Callable[[dict[str, Any]], None],
    told: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    edit(stopped, change)
    before = files(stopped)
    assert told in refused(["resume", str(stopped)], capsys)
    assert files(stopped) == before


@pytest.fixture
def without_snapshot(stopped: Path) -> Path:
    """A finished run whose snapshots someone removed to save room."""
    shutil.rmtree(stopped / "snapshot")
    return stopped


def test_a_finished_run_without_a_snapshot_stays_as_it_is(
    without_snapshot: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = files(without_snapshot)
    assert len(td7.resume(without_snapshot, quiet=True).evaluations) > 0
    line = refused(["resume", str(without_snapshot), "--steps", "80"], capsys)
    assert f"{without_snapshot} has no snapshot to continue from; it is finished, with 60" in line
    assert files(without_snapshot) == before


def test_a_run_of_before_a_field_existed_goes_on(stopped: Path) -> None:
    """A snapshot that knows nothing of a hyperparameter or a setting had its default."""

    def older(config: dict[str, Any]) -> None:
        del config["hyperparameters"]["assessments_end_early"], config["keep_policies"]

    change_both(stopped, older)
    td7.resume(stopped, steps=80, quiet=True)
    assert json.loads((stopped / "finished.json").read_text()) == {"steps": 80}


def test_a_run_of_before_a_column_existed_goes_on(stopped: Path) -> None:
    """Its rows so far have nothing there."""
    table = stopped / "metrics.csv"
    older = [line.rsplit(",", 1)[0] for line in table.read_text().splitlines()]
    table.write_text("\n".join(older) + "\n")
    td7.resume(stopped, steps=100, quiet=True)
    (header, *old), (_, *new) = older, table.read_text().splitlines()
    assert table.read_text().startswith(f"{header},max_priority\n")
    assert 0 < len(old) < len(new)
    for line in new:
        assert (line.rpartition(",")[0] in old) == line.endswith(",")


@pytest.mark.parametrize("variant", ["design/zs'a'", "design/a name of before", "gone/TD3"])
def test_a_row_that_is_another_by_now_is_nothing_to_its_runs(stopped: Path, variant: str) -> None:
    """What it trains with is what its config says: rows are edited, renamed, taken away."""
    config = json.loads((stopped / "config.json").read_text())
    row = STUDIES["design"].rows["zs'a'"]
    assert row.settings["checkpoints"] != config["hyperparameters"]["checkpoints"]
    change_both(stopped, lambda c: c.update(variant=variant))
    td7.resume(stopped, steps=80, quiet=True)
    now = json.loads((stopped / "config.json").read_text())
    assert now == {**config, "variant": variant, "steps": 80}


def test_a_refusal_leaves_no_worker_and_no_lock(
    stopped: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = (stopped / "config.json").read_bytes()
    edit(stopped, lambda config: config.update(evaluate_every=50))
    refused(["resume", str(stopped), "--workers", "1"], capsys)
    assert not [p for p in multiprocessing.active_children() if p.name.startswith("td7-worker")]
    (stopped / "config.json").write_bytes(good)
    td7.resume(stopped, quiet=True)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--set", "batch_size=32"], "batch_size is 16, given 32; `td7 train` starts a run"),
        (["--set", "batch_sise=32"], "did you mean 'batch_size'?"),
        (["--set", "batch_size=many"], "batch_size takes a whole number, given 'many'"),
        (["--set", "batch_size"], "--set takes field=value, given 'batch_size'"),
        (["--steps", "59"], "steps can only grow, given 59"),
        (["--steps", "some"], "steps takes a whole number, given 'some'"),
        (["--workers", "-1"], "workers=-1 must be at least 0"),
        (["--snapshot-every", "-1"], "snapshot_every=-1.0 must be at least 0"),
        (["--env", "Hopper-v4"], "--env: a resumed run keeps its settings, only --steps may grow"),
        (["--seeds=0-3"], "--seeds: a resumed run keeps its settings"),
        (["--batch-size", "32"], "--batch-size: a resumed run keeps its settings"),
        (["--set-size", "32"], "unknown option '--set-size'"),
    ],
)
def test_an_option_that_changes_a_run_is_refused(
    stopped: Path, options: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = files(stopped)
    assert told in refused(["resume", str(stopped), *options], capsys)
    assert files(stopped) == before


def test_the_same_settings_and_steps_are_fine(stopped: Path) -> None:
    before = contents(stopped)
    given = ["--set", *words(SMALL), "--steps", "60", "--quiet"]
    assert main(["resume", str(stopped), *given]) == 0
    assert differences(contents(stopped), before) == []


def test_resume_says_where_it_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From a snapshot, or from the start where a kill came before the first."""
    path = tmp_path / "run"
    assert main(train_words(path)) == 0
    assert " steps, cpu, " in capsys.readouterr().err
    steps = td7.Run(path).config["steps"]
    assert main(["resume", str(path), "--steps", str(steps + 30)]) == 0
    assert f" {steps + 30} steps, resumed after " in capsys.readouterr().err
    shutil.rmtree(path / "snapshot")
    (path / "finished.json").unlink()
    assert main(["resume", str(path)]) == 0
    assert " steps, restarted, as there is no snapshot, cpu, " in capsys.readouterr().err


def test_a_folder_in_use_is_refused(
    runner: Runner, uninterrupted: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    process = runner.start(disk=0.05)  # its end takes a while
    assert wait_until(lambda: runner.rows() > 5, process)
    config = (runner.path / "config.json").read_bytes()
    for options in ([], ["--steps", "9e9"]):
        told = refused(["resume", str(runner.path), *options], capsys)
        assert told == f"td7: {runner.path} is in use by another td7 process"
    assert (runner.path / "config.json").read_bytes() == config
    assert ended(process) == 0
    assert differences(contents(runner.path), uninterrupted) == []


def test_a_finished_run_may_be_resumed(
    tmp_path: Path, finished: Path, uninterrupted: dict[str, Any]
) -> None:
    path = tmp_path / "run"
    shutil.copytree(finished, path)
    for workers in (0, 1):
        td7.resume(path, quiet=True, workers=workers)
        assert differences(contents(path), uninterrupted) == []
        assert (path / "config.json").read_bytes() == (finished / "config.json").read_bytes()


def test_how_it_runs_is_as_before_unless_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run"
    used: list[tuple[int, float]] = []

    def noted(setup: RunSetup) -> Loop:
        used.append((setup.workers, setup.snapshot_every))
        return loop_for(setup)

    monkeypatch.setattr("td7.training.start.loop_for", noted)
    given: dict[str, Any] = {"workers": "1", "snapshot_every": 7.0}
    given["set"] = {**SMALL, "checkpoints": "none"}
    td7.train(env="toys:Point-v0", steps=20, out=str(path), quiet=True, **given)
    td7.resume(path, quiet=True)
    assert main(["resume", str(path), "--quiet", "--workers", "0"]) == 0
    assert main(["resume", str(path), "--quiet", "--snapshot-every", "0"]) == 0
    assert used == [(1, 7.0), (1, 7.0), (0, 7.0), (1, 0.0)]
    # A run of a time before this was noted takes the defaults.
    config = json.loads((path / "config.json").read_text())
    del config["workers"], config["snapshot_every"]
    (path / "config.json").write_text(json.dumps(config))
    td7.resume(path, quiet=True)
    assert used[4:] == [(0, 5.0)]

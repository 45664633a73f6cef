"""Episodes and evaluations as pure tasks; workers that fail, die, end."""

import errno
import itertools
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import td7
import toys
from folders import SMALL, newest, results, words
from td7.algorithms.td7 import TD7, TD7Config
from td7.cli.main import main
from td7.configs import build_config
from td7.errors import InputError, RunError, Stopped
from td7.files import FileDigest, write
from td7.networks.numpy_actor import Actor
from td7.rollouts.episodes import (
    AnyTask,
    EpisodeResult,
    EpisodeTask,
    EvaluationResult,
    EvaluationTask,
    Player,
    TaskResult,
    play,
)
from td7.rollouts.evaluation import beginning, evaluate
from td7.rollouts.pool import Executor, InProcess, Pool, make_executor
from td7.rollouts.registration import describe, make
from td7.runs import folder as folder_module
from td7.seeding import Stream, derived_seed, generator
from td7.types import AnyFloat, Exploration, Task

assert toys  # registers the tasks
POINT = Task("toys:Point-v0")


def learner(seeds: Sequence[int] = (0, 1)) -> TD7:
    import torch

    config = build_config(TD7Config, SMALL)
    return TD7(config, describe(POINT), seeds, torch.device("cpu"), torch.float32)


NETWORK = learner().policy_network
POLICIES: list[AnyFloat] = list(learner().policies().numpy())


def episode(seed: int = 0, number: int = 0, *, policy: int | None = 0) -> EpisodeTask:
    flat = None if policy is None else POLICIES[policy]
    return EpisodeTask(
        seed, number, limit=1_000, policy=flat, exploration=Exploration("added_noise", 0.1)
    )


def evaluation(seed: int = 0, step: int = 0, *, policy: int = 0, episodes: int = 3) -> AnyTask:
    return EvaluationTask(seed, step, episodes, POLICIES[policy])


TASKS: list[AnyTask] = [
    episode(0, 0),
    evaluation(0, 0),
    episode(0, 1),
    episode(0, 1, policy=None),
    evaluation(0, 100),
    episode(1, 0),
    episode(0, 1, policy=1),
    evaluation(1, 100, policy=1),
    episode(0, 7),
]


def key(done: TaskResult) -> tuple[Any, ...]:
    """Which task, apart from its weights."""
    task = done.task
    if isinstance(task, EpisodeTask):
        policy = None if task.policy is None else task.policy.tobytes()
        return ("episode", task.seed, task.episode, policy)
    return ("evaluation", task.seed, task.step, task.policy.tobytes())


def result(done: TaskResult) -> tuple[Any, ...]:
    """All that a task gave, bit for bit."""
    if isinstance(done, EpisodeResult):
        e = done.episode
        return (e.rows.dtype, e.rows.tobytes(), e.episode_return, e.length, e.finished)
    return done.episodes


def play_fresh(task: AnyTask) -> TaskResult:
    player = Player(POINT, NETWORK)
    done = player.run(task)
    player.close()
    return done


@pytest.fixture(scope="module")
def fresh() -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """What each task gives in an environment that nobody used before."""
    return {key(done): result(done) for done in map(play_fresh, TASKS)}


def collect(executor: Executor, tasks: Sequence[AnyTask]) -> list[TaskResult]:
    for task in tasks:
        executor.submit(task)
    done: list[TaskResult] = []
    while executor.pending:
        done += executor.completed(block=True)
    return done


@pytest.fixture
def pool() -> Iterator[Pool]:
    pool = Pool(POINT, NETWORK, 2)
    yield pool
    pool.close()


def look_for(pool: Pool, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        pool.completed(block=False)


def worker_pids() -> dict[str, int]:
    return {p.name: p.pid or 0 for p in multiprocessing.active_children()}


# A task is a pure function


@pytest.mark.parametrize("noise", [0.0, 0.1, 3.0])
def test_an_episode_by_hand(noise: float) -> None:
    """Reset, noise and clipping from the streams; the row holds what the task was given."""
    task = replace(episode(3, 5), exploration=Exploration("added_noise", noise))
    done = play_fresh(task)
    assert isinstance(done, EpisodeResult)
    env = make(POINT)
    state = env.reset(derived_seed(3, Stream.EPISODE_RESET, 5))
    random = generator(3, Stream.EXPLORATION, 5)
    actor = Actor(NETWORK, POLICIES[0])
    total = 0.0
    for row in done.episode.rows:
        exact = np.clip(actor(state) + noise * random.standard_normal(2), -1.0, 1.0)
        action = exact.astype(np.float32)
        step = env.step(action)
        expected = [*state, *action, *step.state, step.reward, 0.0 if step.terminated else 1.0]
        np.testing.assert_array_equal(row, np.array(expected, np.float32))
        total += step.reward
        state = step.state
    assert done.episode.episode_return == total
    assert done.episode.length == len(done.episode.rows) > 10
    assert done.episode.finished


def test_random_actions_fill_the_box() -> None:
    done = [play_fresh(episode(0, k, policy=None)) for k in range(20)]
    actions = np.concatenate([d.episode.rows[:, 2:4] for d in done if isinstance(d, EpisodeResult)])
    assert np.abs(actions).max() <= 1.0
    assert actions.min() < -0.95
    assert actions.max() > 0.95
    np.testing.assert_allclose(actions.mean(0), 0.0, atol=0.1)


def test_an_evaluation_by_hand() -> None:
    done = play_fresh(evaluation(3, 50, episodes=2))
    assert isinstance(done, EvaluationResult)
    actor = Actor(NETWORK, POLICIES[0])
    env = make(POINT)
    for i, played in enumerate(done.episodes):
        state = env.reset(derived_seed(3, Stream.EVALUATION_RESET, 50, i))
        total, length, ended = 0.0, 0, False
        while not ended:
            state, reward, terminated, truncated = env.step(actor(state))
            total, length, ended = total + reward, length + 1, terminated or truncated
        assert (played.episode_return, played.length) == (total, length)


def test_used_players_and_any_order_give_the_same(
    fresh: dict[tuple[Any, ...], tuple[Any, ...]],
) -> None:
    assert len(fresh) == len(set(fresh.values())) == len(TASKS)  # each is something else
    player = Player(POINT, NETWORK)
    random = np.random.default_rng(0)
    for _ in range(3):
        for i in random.permutation(len(TASKS)):
            done = player.run(TASKS[i])
            assert result(done) == fresh[key(done)]
    player.close()


def test_an_episode_cut_short_is_the_beginning_of_the_whole() -> None:
    whole, cut = play_fresh(episode()), play_fresh(replace(episode(), limit=7))
    assert isinstance(whole, EpisodeResult)
    assert isinstance(cut, EpisodeResult)
    np.testing.assert_array_equal(cut.episode.rows, whole.episode.rows[:7])
    assert not cut.episode.finished
    exact = play_fresh(replace(episode(), limit=whole.episode.length))
    assert isinstance(exact, EpisodeResult)
    assert exact.episode.finished


def test_pool_and_process_give_the_same(
    pool: Pool, fresh: dict[tuple[Any, ...], tuple[Any, ...]]
) -> None:
    here = InProcess(POINT, NETWORK)
    for chosen in (here, pool):
        done = collect(chosen, TASKS)
        assert {key(d): result(d) for d in done} == fresh
        assert chosen.pending == ()
        assert chosen.completed(block=True) == []  # nothing to wait for
    here.close()


def test_episodes_go_before_evaluations() -> None:
    pool = Pool(POINT, NETWORK, 1)
    try:
        done = collect(pool, [evaluation(0, 0), evaluation(0, 10), episode(0, 0), episode(0, 1)])
        # The first had begun when the others came.
        kinds = [type(d) for d in done]
        assert kinds == [EvaluationResult, EpisodeResult, EpisodeResult, EvaluationResult]
    finally:
        pool.close()


def given(pool: Pool) -> list[str]:
    """What its workers are doing."""
    return [type(worker.task).__name__ for worker in pool._workers]


def test_a_worker_is_kept_for_episodes(pool: Pool) -> None:
    """Evaluations take long. Where no episode is ever played, they have all workers."""
    for step in (0, 10, 20):
        pool.submit(evaluation(0, step, episodes=50))
    assert given(pool) == ["EvaluationTask", "EvaluationTask"]
    while pool.pending:
        pool.completed(block=True)
    collect(pool, [episode()])
    for step in (30, 40):
        pool.submit(evaluation(0, step, episodes=50))
    assert given(pool) == ["EvaluationTask", "NoneType"]
    pool.submit(episode(0, 1))
    assert given(pool) == ["EvaluationTask", "EpisodeTask"]
    done = collect(pool, [])
    assert len(done) == 3


def test_pending_are_those_that_are_not_taken_yet(pool: Pool) -> None:
    for task in TASKS:
        pool.submit(task)
    taken = 0
    while pool.pending:
        assert len(pool.pending) == len(TASKS) - taken
        taken += len(pool.completed(block=True))
    assert taken == len(TASKS)


def test_no_workers_is_no_pool() -> None:
    chosen = make_executor(POINT, NETWORK, 0)
    assert isinstance(chosen, InProcess)
    chosen.close()


# Faults of the environment


def faulty(fault: str) -> Task:
    return Task("toys:Point-v0", {"fault": fault, "at": 3})


FAULTS = [
    ("raise", "the environment raised ValueError: the motor is on fire"),
    ("exit", "the environment raised SystemExit: 3"),
    ("state", "step 3: the environment gave a non-finite observation (dim 0)"),
    ("reward", "step 3: the environment gave a non-finite reward (inf)"),
]


@pytest.mark.parametrize(("fault", "told"), FAULTS)
def test_a_fault_names_seed_and_place(fault: str, told: str) -> None:
    player = Player(faulty(fault), NETWORK)
    with pytest.raises(RunError) as caught:
        player.run(episode(7, 2))
    assert str(caught.value).startswith("seed 7, episode 2")
    assert str(caught.value).endswith(told)
    for step in (0, 400):  # at 0 the first steps are played once more
        with pytest.raises(RunError) as caught:
            player.run(evaluation(7, step))
        assert str(caught.value).startswith(f"seed 7, evaluation at step {step}")
        assert str(caught.value).endswith(told)


def test_nobody_acts_on_what_is_not_finite() -> None:
    environment = make(faulty("state"))
    acted: list[AnyFloat] = []

    def policy(state: AnyFloat) -> AnyFloat:
        acted.append(state)
        return np.zeros(2)

    assert len(beginning(environment, policy, 0)) == 4  # the first state, and three steps
    assert np.isfinite(acted).all()


@pytest.mark.parametrize(("fault", "told"), FAULTS)
def test_a_fault_in_a_worker_is_the_same_line(
    fault: str, told: str, capfd: pytest.CaptureFixture[str]
) -> None:
    pool = Pool(faulty(fault), NETWORK, 1)
    try:
        with pytest.raises(RunError) as caught:
            collect(pool, [episode(7, 2)])
    finally:
        pool.close()
    assert str(caught.value).startswith("seed 7, episode 2")
    assert str(caught.value).endswith(told)
    assert "\n" not in str(caught.value)
    with pytest.raises(RunError) as here:
        Player(faulty(fault), NETWORK).run(episode(7, 2))
    assert str(caught.value) == str(here.value)
    assert caught.value.details == here.value.details
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("checkpoints", ["minimum", "none"])
@pytest.mark.parametrize("workers", [0, 3])
@pytest.mark.parametrize(("fault", "told"), FAULTS)
def test_a_fault_ends_the_run_in_one_line(
    tmp_path: Path,
    fault: str,
    told: str,
    workers: int,
    checkpoints: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """What an environment raised is told in full in the run folder, and nowhere else."""
    run = tmp_path / "run"
    given = ["--env", "toys:Point-v0", "--env-kwargs", f"fault={fault}", "at=3", "--seeds", "4"]
    given += ["--steps", "100", "--workers", str(workers), "--quiet", "--out", str(run)]
    assert main(["train", *given, "--set", *words({**SMALL, "checkpoints": checkpoints})]) == 1
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("td7: seed 4, ")
    told += f"; all before it is saved, `td7 resume {run}` tries it again"
    if fault in ("raise", "exit"):
        assert line.endswith(f"{told} ({run / 'error.txt'} has its traceback)")
        details = (run / "error.txt").read_text()
        assert details.startswith("Traceback (most recent call last):\n")
        assert f'File "{toys.__file__}"' in details
        assert {"raise": "is on fire", "exit": "SystemExit: 3"}[fault] in details.splitlines()[-1]
    else:
        assert line.endswith(told)
        assert not (run / "error.txt").exists()
    assert not worker_pids()


@pytest.mark.parametrize("checkpoints", ["minimum", "none"])
def test_a_run_that_goes_on_has_no_traceback_of_before(
    tmp_path: Path, checkpoints: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    settings = {**SMALL, "checkpoints": checkpoints}
    monkeypatch.setattr(toys.Point, "reset", lambda *_, **__: sys.exit())
    with pytest.raises(RunError, match=r"raised SystemExit: SystemExit.*error\.txt has its"):
        td7.train(env="toys:Point-v0", steps=40, set=settings, out=str(run), quiet=True)
    assert (run / "error.txt").exists()
    monkeypatch.undo()
    td7.resume(run, quiet=True)
    assert (run / "finished.json").exists()
    assert not (run / "error.txt").exists()


@pytest.mark.parametrize("checkpoints", ["minimum", "none"])
@pytest.mark.parametrize("workers", ["0", "3"])
@pytest.mark.parametrize(
    ("seeds", "every", "place"),
    [("5,9", 1000, "5, episode 8"), ("7,9", 40, "7, evaluation at step 80")],
)
def test_a_fault_costs_nothing_of_what_was_learned(
    tmp_path: Path, seeds: str, every: int, place: str, workers: str, checkpoints: str
) -> None:
    """Up to it all is saved; a run that goes on is the one that had none."""
    cold = tmp_path / "cold"
    found = []
    for name in ("cold", "warm"):
        run = tmp_path / f"run-{name}"
        given: dict[str, Any] = {"env": "toys:Point-v0", "env_kwargs": {"fault": str(cold)}}
        given |= {"seeds": seeds, "steps": 200, "evaluate_every": every, "metrics_every": 10}
        given |= {"set": {**SMALL, "checkpoints": checkpoints}, "workers": workers}
        if name == "cold":
            cold.touch()
            with pytest.raises(RunError, match=f"{place}.* is cold; all before it is saved"):
                td7.train(**given, snapshot_every=0, out=str(run), quiet=True)
            cold.unlink()
            saved = json.loads((newest(run) / "members.json").read_text())
            assert sum(member["steps"] for member in saved["members"]) >= 160
            assert sum(saved["updates"]) > 0
            td7.resume(run, quiet=True)
        else:
            td7.train(**given, out=str(run), quiet=True)
        found.append(results(run))
    assert found[0] == found[1]


def test_a_fault_comes_after_the_results_that_came_with_it(tmp_path: Path) -> None:
    """The others' results are given first, and its task stays."""
    cold = tmp_path / "cold"
    cold.touch()
    task = Task("toys:Point-v0", {"fault": str(cold)})
    with_fault, without = [], []
    for i in range(60):
        try:
            Player(task, NETWORK).run(episode(0, i))
            without.append(episode(0, i))
        except RunError:
            with_fault.append(episode(0, i))
    assert with_fault
    given = (without[0], with_fault[0], without[1], without[2])
    pool = Pool(task, NETWORK, 3)
    try:
        for one in given:
            pool.submit(one)
        for worker in pool._workers:
            assert worker.connection.poll(60)  # all three have answered
        taken = [str(done.task) for done in pool.completed(block=True)]
        assert taken == [str(without[0]), str(without[1])]
        left = [str(with_fault[0]), str(without[2])]
        assert [str(task) for task in pool.pending] == left
        with pytest.raises(RunError, match="is cold"):
            pool.completed(block=True)
        assert [str(task) for task in pool.pending] == left
    finally:
        pool.close()


def forgetful(reset: Any) -> Any:
    """A reset that does not heed its seed."""
    return lambda self, *, seed=None, options=None: reset(self, seed=None, options=options)


def drifting(step: Any) -> Any:
    """A reward with something of all the steps before, as normalising wrappers give."""
    made = itertools.count()
    return lambda self, action: (
        (result := step(self, action))[0],
        result[1] + 1e-9 * next(made),
        *result[2:],
    )


@pytest.mark.parametrize(("name", "change"), [("reset", forgetful), ("step", drifting)])
@pytest.mark.parametrize("checkpoints", ["minimum", "none"])
def test_episodes_that_do_not_repeat_are_told_once(
    tmp_path: Path,
    name: str,
    change: Any,
    checkpoints: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(toys.Point, name, change(getattr(toys.Point, name)))
    settings = {**SMALL, "checkpoints": checkpoints}
    given: dict[str, Any] = {"steps": 40, "seeds": "0-2", "set": settings, "quiet": True}
    td7.train(env="toys:Point-v0", out=str(tmp_path / "run"), **given)
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("task toys:Point-v0: an episode does not follow from its reset seed")
    monkeypatch.undo()
    td7.train(env="toys:Point-v0", out=str(tmp_path / "other"), **given)
    assert capfd.readouterr().err == ""


def test_a_traceback_that_cannot_be_written_does_not_hide_the_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, content: bytes) -> FileDigest:
        if path.name == "error.txt":
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(path, content)

    monkeypatch.setattr(folder_module, "write", full)
    with pytest.raises(RunError, match=r"ValueError: the motor is on fire; .* tries it again$"):
        td7.train(env="toys:Faulty-v0", steps=40, set=SMALL, out=str(tmp_path / "run"), quiet=True)


@pytest.mark.parametrize("checkpoints", ["minimum", "none"])
def test_an_interrupt_is_not_the_environments(
    tmp_path: Path, checkpoints: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(toys.Point, "step", interrupted)
    settings = {**SMALL, "checkpoints": checkpoints}
    with pytest.raises(KeyboardInterrupt):
        td7.train(
            env="toys:Point-v0", steps=40, set=settings, out=str(tmp_path / "run"), quiet=True
        )


@pytest.mark.parametrize("workers", [0, 1])
def test_a_task_that_cannot_be_made_again_is_one_line(
    workers: int, capfd: pytest.CaptureFixture[str]
) -> None:
    """One that a run has made already to look at it."""
    chosen = make_executor(Task("toys:Point-v0", {"wheels": 4}), NETWORK, workers)
    try:
        with pytest.raises(InputError, match=r"^task 'toys:Point-v0' cannot be made with"):
            collect(chosen, [episode()])
    finally:
        chosen.close()
    assert capfd.readouterr().err == ""


# Workers


def died(name: str, doing: str) -> str:
    return f"worker process {name} died (signal SIGKILL) while {doing}"


@pytest.mark.parametrize("task", [episode(7, 2), evaluation(7, 400)], ids=str)
def test_a_task_that_workers_die_of_is_named(task: AnyTask) -> None:
    """The first of them is replaced, which is told."""
    said: list[str] = []
    pool = Pool(faulty("kill"), NETWORK, 1, said.append)
    begin = time.monotonic()
    try:
        with pytest.raises(RunError) as caught:
            collect(pool, [task])
        assert pool.pending == (task,)
    finally:
        pool.close()
    told = died("td7-worker-0", f"busy with {task}")
    assert str(caught.value) == told
    assert said == [told + "; another takes its place"]
    assert time.monotonic() - begin < 20
    assert not worker_pids()


def test_idle_workers_that_are_killed_are_named() -> None:
    """The first is replaced; who kills a second one is to be found out."""
    said: list[str] = []
    pool = Pool(POINT, NETWORK, 2, said.append)
    try:
        collect(pool, TASKS)  # both are up
        os.kill(worker_pids()["td7-worker-1"], signal.SIGKILL)
        while not said:
            pool.completed(block=False)
        assert said == [died("td7-worker-1", "idle") + "; another takes its place"]
        os.kill(worker_pids()["td7-worker-0"], signal.SIGKILL)
        with pytest.raises(RunError) as caught:
            look_for(pool, seconds=20)
        assert str(caught.value) == died("td7-worker-0", "idle")
    finally:
        pool.close()
    assert not worker_pids()


def test_what_a_killed_worker_was_given_is_done(
    fresh: dict[tuple[Any, ...], tuple[Any, ...]],
) -> None:
    """By another one, and before what came later."""
    said: list[str] = []
    pool = Pool(POINT, NETWORK, 1, said.append)
    try:
        collect(pool, TASKS[:1])
        (process,) = multiprocessing.active_children()
        process.kill()
        process.join()
        for task in TASKS:
            pool.submit(task)  # says nothing: who submits may be saving what there is
        assert said == []
        done = collect(pool, [])
        assert key(done[0]) == key(play_fresh(TASKS[0]))
        assert {key(d): result(d) for d in done} == fresh
        assert said == [died("td7-worker-0", f"busy with {TASKS[0]}") + "; another takes its place"]
    finally:
        pool.close()


def test_no_process_remains_after_close() -> None:
    assert not worker_pids()
    pool = Pool(POINT, NETWORK, 2)
    processes = multiprocessing.active_children()
    assert len(processes) == 2
    pool.submit(evaluation(0, 0, episodes=1_000_000))  # one in the middle of something, one idle
    pool.completed(block=True)
    pool.close()
    assert not worker_pids()


def test_starting_workers_leaves_this_process_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers have one thread and hear no signals; this process keeps what it had."""
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    Pool(POINT, NETWORK, 1).close()
    assert os.environ["OMP_NUM_THREADS"] == "7"
    assert "MKL_NUM_THREADS" not in os.environ
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before


def python(program: str, *arguments: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_a_worker_does_not_load_torch() -> None:
    program = """
import sys
import td7.rollouts.pool
from td7.rollouts.episodes import Player
loaded = [name for name in sys.modules if name.partition('.')[0] in ('torch', 'pandas')]
print(loaded)
"""
    out, _ = python(program).communicate(timeout=60)
    assert out == "[]\n"


WORKERS_TELL = """
import sys
from td7.rollouts.pool import Pool
import td7.cli.main
completed = Pool.completed
def tell(self, *, block):
    done = completed(self, block=block)
    if done:
        print('working', flush=True)  # a worker is up
    return done
Pool.completed = tell
td7.cli.main.main(sys.argv[1:])
"""
STEPPERS_TELL = """
import sys
from td7.training import lockstep
from td7.rollouts.vector import ParallelVectorEnvironment
import td7.cli.main
lockstep.can_spin = lambda _: {spins}
advance = ParallelVectorEnvironment.advance
def tell(self):
    advance(self)
    print('working', flush=True)  # all of them are up
ParallelVectorEnvironment.advance = tell
td7.cli.main.main(sys.argv[1:])
"""


@pytest.mark.parametrize(
    ("program", "checkpoints"),
    [
        (WORKERS_TELL, "minimum"),
        (STEPPERS_TELL.format(spins=True), "none"),
        (STEPPERS_TELL.format(spins=False), "none"),
    ],
    ids=["workers", "spinning steppers", "steppers"],
)
def test_workers_end_with_a_killed_parent(tmp_path: Path, program: str, checkpoints: str) -> None:
    """Workers inherit standard output, so it ends only when the last of them has."""
    command = ["train", "--env", "toys:Point-v0", "--steps", "2e6", "--workers", "3", "--quiet"]
    settings = {**SMALL, "random_steps": 1_000_000, "checkpoints": checkpoints}
    out = ["--out", str(tmp_path / "run"), "--seeds", "0-1"]
    process = python(program, *command, *out, "--set", *words(settings))
    assert process.stdout is not None
    assert process.stdout.readline() == "working\n"
    process.kill()
    rest, _ = process.communicate(timeout=30)  # to the end of the output: of the last process
    assert process.returncode == -signal.SIGKILL
    assert set(rest.split()) <= {"working"}


POOL = """
import os, signal, sys
from td7.networks.description import Layer, Network
from td7.rollouts.episodes import EpisodeTask
from td7.rollouts.pool import Pool
from td7.types import Task

def make(limit):
    task = Task('toys:Count-v0', {'max_episode_steps': limit})
    return Pool(task, Network({'state': 1}, (Layer('action', ('state',), 1),)), 2)

def play(pool, limit):
    for k in range(2):
        pool.submit(EpisodeTask(0, k, limit, None, 0.0))
    while pool.pending:
        for done in pool.completed(block=True):
            print(done.episode.length, flush=True)
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_to_all_processes_is_the_parents_to_handle(name: str) -> None:
    """Ctrl-C and `timeout` reach every process of a group, also those still importing."""
    program = f"""
os.setpgid(0, 0)
signal.signal(signal.{name}, lambda *_: print('heard', flush=True))
pool = make(3)
os.killpg(0, signal.{name})
play(pool, 3)
os.killpg(0, signal.{name})
play(pool, 3)
pool.close()
"""
    process = python(POOL + program)
    out, _ = process.communicate(timeout=60)
    assert sorted(out.split()) == ["3"] * 4 + ["heard"] * 2
    assert process.returncode == 0


def test_a_pool_that_nobody_closed_ends_with_python() -> None:
    program = """
pool = make(10**12)
play(pool, 3)  # both are up
pool.submit(EpisodeTask(0, 0, 10**12, None, 0.0))
"""
    process = python(POOL + program)
    out, _ = process.communicate(timeout=60)
    assert out.split() == ["3", "3"]
    assert process.returncode == 0


def test_play_is_what_players_play() -> None:
    environment = make(POINT)
    played = play(environment, NETWORK, episode())
    done = play_fresh(episode())
    assert isinstance(done, EpisodeResult)
    np.testing.assert_array_equal(played.rows, done.episode.rows)
    environment.close()


def test_an_evaluation_without_an_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("td7.rollouts.evaluation.LONGEST", 50)
    environment = make(Task("toys:Endless-v0"))
    told = "seed 3, evaluation at step 10, episode 0: no end after 50 steps; a task without a time"
    with pytest.raises(RunError, match=told):
        list(evaluate(environment, lambda _: np.zeros(1), seed=3, step=10, episodes=1))
    limited = make(Task("toys:Endless-v0", {"max_episode_steps": 70}))
    (played,) = evaluate(limited, lambda _: np.zeros(1), seed=3, step=10, episodes=1)
    assert played.length == 70


def test_a_signal_ends_a_task_that_would_never_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The evaluation at step 0 goes on for ever; it waits in the snapshot, to be played again."""
    monkeypatch.setattr("td7.rollouts.evaluation.LONGEST", 10**9)
    step = toys.Count.step

    def alarmed(self: toys.Count, action: Any) -> Any:
        if self._steps == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        return step(self, action)

    monkeypatch.setattr(toys.Count, "step", alarmed)
    run = tmp_path / "run"
    with pytest.raises(Stopped, match="SIGTERM") as stopped:
        td7.train(env="toys:Endless-v0", steps=100, set=SMALL, out=str(run), quiet=True)
    assert not isinstance(stopped.value, Exception)  # or `except Exception` would go on after it
    members = json.loads((run / "snapshot" / "000001" / "members.json").read_text())
    assert [task["step"] for task in members["pending_evaluations"]] == [0]


# Scripts

PLAIN_SCRIPT = """
import td7
run = td7.train(env="toys:Point-v0", steps=40, workers=2, out="run", quiet=True,
                evaluation_episodes=1, set={settings})
print("episodes", len(run.episodes))
"""
OWN_TASK = """
import gymnasium, toys

class Mine(toys.Point):
    pass

gymnasium.register("Mine-v0", entry_point=Mine, max_episode_steps=20)
print("defined", flush=True)
import td7
run = td7.train(env="Mine-v0", steps=40, workers=2, out="run", quiet=True,
                evaluation_episodes=1, set={settings})
print("episodes", len(run.episodes))
"""

OF_A_MODULE = OWN_TASK.replace("entry_point=Mine", "entry_point=toys.Point")


def run_script(folder: Path, words: Sequence[str], text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        input=text,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


SCRIPTS = {"plain": PLAIN_SCRIPT, "own task": OWN_TASK, "registered": OF_A_MODULE}


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("checkpoints", ["minimum", "none"])
def test_a_users_script_with_workers(tmp_path: Path, script: str, checkpoints: str) -> None:
    """It is not run again by the workers, unless it defines the task they need.

    Then it is run up to where it trains, so that it needs no `if __name__ == "__main__"`.
    """
    settings = {**SMALL, "checkpoints": checkpoints}
    file = tmp_path / "script.py"
    file.write_text(SCRIPTS[script].replace("{settings}", repr(settings)))
    done = run_script(tmp_path, [str(file)], "")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "episodes 2"
    again = done.stdout.count("defined")  # once here, and in every worker that must
    assert again == {"plain": 0, "own task": 3, "registered": 1}[script]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "script.py"]


def test_a_program_without_a_file(tmp_path: Path) -> None:
    """As in a notebook: what a module defines can be sent, what the program defines cannot."""
    sent = run_script(tmp_path, ["-"], OF_A_MODULE.replace("{settings}", repr(dict(SMALL))))
    assert (sent.returncode, sent.stderr) == (0, "")
    (tmp_path / "run").rename(tmp_path / "before")
    not_sent = run_script(tmp_path, ["-"], OWN_TASK.replace("{settings}", repr(dict(SMALL))))
    told = not_sent.stderr.splitlines()[-1]
    assert told.startswith("td7.errors.InputError: worker processes cannot make the task 'Mine-v0'")
    assert told.endswith(
        "put it into a module, as 'module:Mine-v0', or give workers=0 and processes=1"
    )

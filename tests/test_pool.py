"""Executors run tasks in this process or in workers, which may fail and die."""

import errno
import multiprocessing
import os
import re
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

import pytest

from point_tasks import (
    FAULTS,
    NETWORK,
    POINT,
    TASKS,
    comparable,
    episode,
    evaluation,
    faulty,
    fresh_results,
    play_fresh,
)
from td7.errors import EnvironmentFault, RunError
from td7.processes import end_workers
from td7.rollouts.episodes import AnyTask, EpisodeResult, EvaluationResult, Player, TaskResult
from td7.rollouts.pool import Executor, InProcess, Pool, make_executor
from td7.types import Task


def collect(executor: Executor, tasks: Sequence[AnyTask]) -> list[TaskResult]:
    """Submit the tasks; return the results of all that are pending."""
    for task in tasks:
        executor.submit(task)
    results: list[TaskResult] = []
    while executor.pending:
        results += executor.completed(block=True)
    return results


@pytest.fixture
def pool() -> Iterator[Pool]:
    pool = Pool(POINT, NETWORK, 2)
    yield pool
    pool.close()


def poll(pool: Pool, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        pool.completed(block=False)


def worker_pids() -> dict[str, int]:
    return {p.name: p.pid or 0 for p in multiprocessing.active_children()}


# -- tasks and their order -----------------------------------------------------------------------


def test_a_pool_and_this_process_give_the_same_results(pool: Pool) -> None:
    here = InProcess(POINT, NETWORK)
    for executor in (here, pool):
        assert comparable(collect(executor, TASKS)) == fresh_results()
        assert executor.pending == ()
        assert executor.completed(block=True) == []  # nothing to wait for
    here.close()


def test_without_workers_tasks_run_in_this_process() -> None:
    executor = make_executor(POINT, NETWORK, 0)
    assert isinstance(executor, InProcess)
    executor.close()


def test_episodes_precede_evaluations() -> None:
    pool = Pool(POINT, NETWORK, 1)
    try:
        tasks = [evaluation(0, 0), evaluation(0, 10), episode(0, 0), episode(0, 1)]
        # The first evaluation has begun before the episodes are submitted.
        kinds = [type(result) for result in collect(pool, tasks)]
        assert kinds == [EvaluationResult, EpisodeResult, EpisodeResult, EvaluationResult]
    finally:
        pool.close()


def running(pool: Pool) -> list[str]:
    """Return what each worker of a pool is doing."""
    return [type(pool._running.get(worker.name)).__name__ for worker in pool._workers]


def test_one_worker_is_reserved_for_episodes(pool: Pool) -> None:
    """Evaluations take long. Where no episode was ever played, they may use all workers."""
    for step in (0, 10, 20):
        pool.submit(evaluation(0, step, episodes=50))
    assert running(pool) == ["EvaluationTask", "EvaluationTask"]
    collect(pool, [])
    collect(pool, [episode()])
    for step in (30, 40):
        pool.submit(evaluation(0, step, episodes=50))
    assert running(pool) == ["EvaluationTask", "NoneType"]
    pool.submit(episode(0, 1))
    assert running(pool) == ["EvaluationTask", "EpisodeTask"]
    assert len(collect(pool, [])) == 3


def test_a_task_is_pending_until_its_result_is_returned(pool: Pool) -> None:
    for task in TASKS:
        pool.submit(task)
    returned = 0
    while pool.pending:
        assert len(pool.pending) == len(TASKS) - returned
        returned += len(pool.completed(block=True))
    assert returned == len(TASKS)


# -- faults of the environment -------------------------------------------------------------------


@pytest.mark.parametrize(("fault", "message"), FAULTS)
def test_a_fault_has_the_same_message_in_a_worker(
    fault: str, message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    pool = Pool(faulty(fault), NETWORK, 1)
    try:
        with pytest.raises(RunError) as caught:
            collect(pool, [episode(7, 2)])
    finally:
        pool.close()
    assert str(caught.value).startswith("seed 7, episode 2")
    assert str(caught.value).endswith(message)
    assert "\n" not in str(caught.value)
    with pytest.raises(RunError) as here:
        Player(faulty(fault), NETWORK).run(episode(7, 2))
    assert str(caught.value) == str(here.value)
    assert caught.value.details == here.value.details
    assert capfd.readouterr().err == ""


def test_results_that_are_ready_precede_a_fault(tmp_path: Path) -> None:
    """The other workers' results come first, and the task that failed stays pending."""
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
    pool = Pool(task, NETWORK, 3)
    try:
        for submitted in (without[0], with_fault[0], without[1], without[2]):
            pool.submit(submitted)
        for worker in pool._workers:
            assert worker.connection.poll(60)  # all three have answered
        completed = [str(result.task) for result in pool.completed(block=True)]
        assert completed == [str(without[0]), str(without[1])]
        left = [str(with_fault[0]), str(without[2])]
        assert [str(task) for task in pool.pending] == left
        with pytest.raises(RunError, match="is cold"):
            pool.completed(block=True)
        assert [str(task) for task in pool.pending] == left
    finally:
        pool.close()


@pytest.mark.parametrize("workers", [0, 1])
def test_an_environment_that_cannot_be_made_is_one_line(
    workers: int, capfd: pytest.CaptureFixture[str]
) -> None:
    executor = make_executor(Task("toys:Point-v0", {"wheels": 4}), NETWORK, workers)
    try:
        with pytest.raises(EnvironmentFault, match=r"^task 'toys:Point-v0' cannot be made with"):
            collect(executor, [episode()])
    finally:
        executor.close()
    assert capfd.readouterr().err == ""


# -- workers that die ----------------------------------------------------------------------------


def death(name: str, doing: str) -> str:
    return f"worker process {name} died (signal SIGKILL) while {doing}"


def replacement(name: str, doing: str) -> str:
    return f"{death(name, doing)}; a new worker replaces it"


@pytest.mark.parametrize("task", [episode(7, 2), evaluation(7, 400)], ids=str)
def test_a_task_that_kills_two_workers_is_named(task: AnyTask) -> None:
    """The first worker is replaced, with a warning."""
    warnings: list[str] = []
    pool = Pool(faulty("kill"), NETWORK, 1, warnings.append)
    begin = time.monotonic()
    try:
        with pytest.raises(RunError) as caught:
            collect(pool, [task])
        assert pool.pending == (task,)
    finally:
        pool.close()
    assert str(caught.value) == death("td7-worker-0", f"busy with {task}")
    assert warnings == [replacement("td7-worker-0", f"busy with {task}")]
    assert time.monotonic() - begin < 20
    assert not worker_pids()


def test_the_death_of_a_second_idle_worker_is_an_error() -> None:
    """The first is replaced, with a warning; somebody must look for the cause of the second."""
    warnings: list[str] = []
    pool = Pool(POINT, NETWORK, 2, warnings.append)
    try:
        collect(pool, TASKS)  # both have started
        os.kill(worker_pids()["td7-worker-1"], signal.SIGKILL)
        while not warnings:
            pool.completed(block=False)
        assert warnings == [replacement("td7-worker-1", "idle")]
        os.kill(worker_pids()["td7-worker-0"], signal.SIGKILL)
        with pytest.raises(RunError) as caught:
            poll(pool, seconds=20)
        assert str(caught.value) == death("td7-worker-0", "idle")
    finally:
        pool.close()
    assert not worker_pids()


def test_a_new_worker_runs_a_killed_workers_task_first() -> None:
    warnings: list[str] = []
    pool = Pool(POINT, NETWORK, 1, warnings.append)
    try:
        collect(pool, TASKS[:1])
        (process,) = multiprocessing.active_children()
        process.kill()
        process.join()
        for task in TASKS:
            pool.submit(task)  # raises nothing: a snapshot may be in progress
        assert warnings == []
        results = collect(pool, [])
        assert comparable(results[:1]) == comparable([play_fresh(TASKS[0])])
        assert comparable(results) == fresh_results()
        assert warnings == [replacement("td7-worker-0", f"busy with {TASKS[0]}")]
    finally:
        pool.close()


def fail_to_start(*_: object) -> NoReturn:
    raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")


def test_a_pool_continues_with_the_workers_that_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both workers die, and no new one starts. The task that is then left stays pending."""
    warnings: list[str] = []
    pool = Pool(POINT, NETWORK, 2, warnings.append)
    problem = "a new worker cannot start: BlockingIOError"
    try:
        collect(pool, TASKS)  # both have started
        monkeypatch.setattr("td7.rollouts.pool.start_workers", fail_to_start)
        os.kill(worker_pids()["td7-worker-1"], signal.SIGKILL)
        while not warnings:
            pool.completed(block=False)
        assert warnings[0].startswith(f"{death('td7-worker-1', 'idle')}; {problem}")
        assert warnings[0].endswith("temporarily unavailable; the run continues with 1 worker(s)")
        assert comparable(collect(pool, TASKS)) == fresh_results()
        (process,) = multiprocessing.active_children()
        process.kill()
        process.join()
        with pytest.raises(RunError, match=re.escape(problem)):
            collect(pool, TASKS[:1])
        assert pool.pending == (TASKS[0],)
    finally:
        pool.close()
    assert not worker_pids()


def test_results_survive_an_interrupt_while_a_worker_is_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its own task and that of another worker, which has answered, stay pending."""
    pool = Pool(POINT, NETWORK, 2)
    tasks = [episode(), evaluation(episodes=1_000_000)]
    try:
        for task in tasks:
            pool.submit(task)
        by_name = {worker.name: worker for worker in pool._workers}
        assert by_name["td7-worker-0"].connection.poll(60)
        by_name["td7-worker-1"].process.kill()
        by_name["td7-worker-1"].process.join()

        def interrupt(*_: object) -> NoReturn:
            raise KeyboardInterrupt

        monkeypatch.setattr("td7.rollouts.pool.start_workers", interrupt)
        with pytest.raises(KeyboardInterrupt):
            collect(pool, [])
        assert set(map(str, pool.pending)) == set(map(str, tasks))
    finally:
        pool.close()


def test_workers_may_be_ended_twice_and_all_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first error is raised once every worker has ended."""
    pool = Pool(POINT, NETWORK, 2)
    workers = list(pool._workers)
    end_workers(workers[:1])
    first = workers[0].connection
    monkeypatch.setattr(first, "close", fail_to_start)
    with pytest.raises(BlockingIOError):
        end_workers(workers)
    assert not worker_pids()
    monkeypatch.undo()
    pool.close()


def test_no_process_remains_after_close() -> None:
    assert not worker_pids()
    pool = Pool(POINT, NETWORK, 2)
    assert len(multiprocessing.active_children()) == 2
    pool.submit(evaluation(0, 0, episodes=1_000_000))  # one worker is busy, the other idle
    pool.completed(block=True)
    pool.close()
    assert not worker_pids()

"""Tasks: the action map, flat states, ends and time limits, and descriptions."""

import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from numpy.typing import DTypeLike

from td7.errors import EnvironmentFault, InputError, RunError
from td7.rollouts.environment import ActionMap
from td7.rollouts.registration import describe, make, mujoco_tasks
from td7.types import PAPER_TASKS, Task
from tiny_tasks import Register, Tiny, tiny

# -- actions -------------------------------------------------------------------------------------


def test_the_action_map_by_hand() -> None:
    action_map = ActionMap(low=(-1.0, 0.0), high=(3.0, 10.0))
    pairs: list[tuple[list[float], list[float]]] = [
        ([-1, -1], [-1, 0]),
        ([0, 0], [1, 5]),
        ([1, 1], [3, 10]),
        ([0.5, -0.5], [2, 2.5]),
    ]
    for unit, task in pairs:
        np.testing.assert_array_equal(action_map.to_task(unit), task)
        np.testing.assert_array_equal(action_map.to_unit(task), unit)
    unit_batch, task_batch = (np.array(side, np.float32) for side in zip(*pairs, strict=True))
    np.testing.assert_array_equal(action_map.to_task(unit_batch), task_batch)
    np.testing.assert_array_equal(action_map.to_unit(task_batch), unit_batch)


def test_the_action_map_stays_in_bounds() -> None:
    low, high = np.sort(np.random.default_rng(0).normal(size=(2, 10_000)), axis=0)
    to_own = ActionMap(tuple(low), tuple(high))
    np.testing.assert_array_equal(to_own.to_task(np.full(10_000, 7.0)), high)
    np.testing.assert_array_equal(to_own.to_task(np.full(10_000, -7.0)), low)
    assert (to_own.to_task(np.ones(10_000)) <= high).all()
    assert (to_own.to_task(-np.ones(10_000)) >= low).all()
    np.testing.assert_array_equal(to_own.to_unit(high + 1), np.ones(10_000))
    np.testing.assert_array_equal(to_own.to_unit(low - 1), -np.ones(10_000))


def test_the_action_map_survives_the_widest_bounds() -> None:
    largest = np.finfo(np.float64).max
    np.testing.assert_array_equal(ActionMap((-largest,), (largest,)).to_task([1.0]), [largest])


def test_humanoids_controls_end_at_0_4() -> None:
    environment = make(Task("Humanoid-v4"))
    base: Any = environment.env.unwrapped
    environment.reset(seed=0)
    environment.step(np.linspace(-1, 1, 17))
    np.testing.assert_allclose(base.data.ctrl, np.linspace(-0.4, 0.4, 17), rtol=1e-7)
    environment.step(np.full(17, 2.0))
    np.testing.assert_array_equal(base.data.ctrl, np.float32(0.4))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_asymmetric_actions_reach_the_task_in_its_shape_and_dtype(
    dtype: DTypeLike, register: Register
) -> None:
    low, high = np.array([[-1, 0], [2, -8]]), np.array([[3, 10], [4, -6]])
    environment = make(register(action_space=Box(low, high, dtype=np.float32)))
    assert environment.spec.action_low == (-1.0, 0.0, 2.0, -8.0)
    assert environment.spec.action_high == (3.0, 10.0, 4.0, -6.0)
    environment.reset(seed=0)
    environment.step(np.array([0.5, -0.5, -1, 1], dtype))
    action = tiny(environment).last_action
    assert action.dtype == np.float32
    np.testing.assert_array_equal(action, [[2, 2.5], [2, -6]])


def test_an_integer_action_is_rounded_to_the_nearest(register: Register) -> None:
    environment = make(register(action_space=Box(-3, 3, (2,), np.int64)))
    environment.reset(seed=0)
    environment.step(np.array([0.9, -0.9]))
    assert tiny(environment).last_action.dtype == np.int64
    np.testing.assert_array_equal(tiny(environment).last_action, [3, -3])


def test_an_action_of_another_size_is_refused(register: Register) -> None:
    environment = make(register(action_space=Box(-1, 1, (3,))))
    environment.reset(seed=0)
    with pytest.raises(RunError, match=r"an action must have the shape \(3,\), not \(1,\)"):
        environment.step(np.zeros(1))  # NumPy could broadcast it


# -- states --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("space", "dtype"),
    [
        (Box(-np.inf, np.inf, (3,), np.float64), np.float64),
        (Box(-np.inf, np.inf, (3,), np.float32), np.float32),
        (Box(-1000, 1000, (3,), np.float16), np.float32),
        (Box(-1000, 1000, (3,), np.int64), np.float32),
        (Box(0, 255, (2, 3, 4), np.int32), np.float32),
        (Box(-np.inf, np.inf, (), np.float64), np.float64),
    ],
)
def test_states_are_flat_floats(space: Box, dtype: DTypeLike, register: Register) -> None:
    environment = make(register(observation_space=space))
    size = environment.spec.state_dim
    assert size == int(np.prod(space.shape))
    first = environment.reset(seed=0)
    second = environment.step(np.zeros(1)).state
    for state, count in [(first, 0), (second, 1)]:  # compared late: no state is a view
        assert state.dtype == dtype
        np.testing.assert_array_equal(state, np.full(size, count))


def test_a_state_is_flattened_row_by_row(register: Register) -> None:
    class Transposed(Tiny):
        def reset(self, **_: Any) -> tuple[Any, dict[str, Any]]:
            return np.arange(6.0).reshape(3, 2).T, {}

    environment = make(register(Transposed, observation_space=Box(-9, 9, (2, 3), np.float64)))
    np.testing.assert_array_equal(environment.reset(seed=0), [0, 2, 4, 1, 3, 5])


def test_an_observation_of_another_shape_is_a_fault(register: Register) -> None:
    environment = make(register(emits=(1, 2)))
    with pytest.raises(RunError, match=r"Td7Test0-v0, reset: .* \(1, 2\), .* shape \(2,\)$"):
        environment.reset(seed=0)


# -- ends ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ends_at", "flags"),
    [
        (None, [(False, False), (False, False), (False, True)]),
        (2, [(False, False), (True, False)]),
        (3, [(False, False), (False, False), (True, True)]),  # a true end on the last step
    ],
)
def test_an_end_differs_from_a_time_limit(
    ends_at: int | None, flags: list[tuple[bool, bool]], register: Register
) -> None:
    environment = make(register(ends_at=ends_at, max_episode_steps=3))
    for _ in range(2):
        environment.reset(seed=0)
        steps = [environment.step(np.zeros(1)) for _ in flags]
        assert [(step.terminated, step.truncated) for step in steps] == flags
        assert {type(step.terminated) for step in steps} == {bool}
        assert {step.reward for step in steps} == {0.5}


def test_the_time_limit_comes_from_the_task_or_its_options(register: Register) -> None:
    limited, unlimited = register(max_episode_steps=3), register()
    assert describe(limited).time_limit == 3
    assert describe(unlimited).time_limit is None
    assert describe(Task(limited.id, {"max_episode_steps": 7})).time_limit == 7
    assert describe(Task(limited.id, {"max_episode_steps": -1})).time_limit is None


# -- descriptions --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("id", "state_dim", "action_dim", "bound"),
    [
        ("HalfCheetah-v4", 17, 6, 1.0),
        ("Hopper-v4", 11, 3, 1.0),
        ("Walker2d-v4", 17, 6, 1.0),
        ("Ant-v4", 27, 8, 1.0),
        ("Humanoid-v4", 376, 17, float(np.float32(0.4))),
    ],
)
def test_descriptions_of_the_papers_tasks(
    id: str, state_dim: int, action_dim: int, bound: float
) -> None:
    spec = describe(Task(id))
    assert spec.task == Task(id, seed_bits=63)
    assert (spec.state_dim, spec.action_dim, spec.time_limit) == (state_dim, action_dim, 1000)
    assert spec.action_low == (-bound,) * action_dim
    assert spec.action_high == (bound,) * action_dim


def test_every_listed_task_can_be_made() -> None:
    listed = mujoco_tasks()
    assert set(PAPER_TASKS) < set(listed)
    assert {id[-3:] for id in listed} == {"-v4", "-v5"}
    for id in listed:
        assert describe(Task(id)).task.id == id


@pytest.mark.usefixtures("register")  # unregisters what the module registers
def test_a_module_can_register_the_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "td7_test_module.py").write_text(
        "import gymnasium\n"
        "pendulum = 'gymnasium.envs.classic_control.pendulum:PendulumEnv'\n"
        "gymnasium.register('Td7TestModule-v0', entry_point=pendulum)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    try:
        spec = describe(Task("td7_test_module:Td7TestModule-v0"))
    finally:
        sys.modules.pop("td7_test_module", None)
    assert (spec.state_dim, spec.action_low, spec.action_high) == (3, (-2.0,), (2.0,))
    assert spec.task.id == "td7_test_module:Td7TestModule-v0"


def test_close_closes_the_task(register: Register, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = []

    def close(self: Tiny) -> None:
        closed.append(self)

    monkeypatch.setattr(Tiny, "close", close)
    environment = make(register())
    environment.close()
    assert closed == [tiny(environment)]
    with pytest.raises(InputError):
        make(register(action_space=Discrete(2)))
    assert len(closed) == 2


def test_only_the_warning_about_the_version_is_suppressed(register: Register) -> None:
    with pytest.warns(DeprecationWarning, match="out of date"):
        gymnasium.make("Hopper-v4")  # Gymnasium still warns
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make(Task("Hopper-v4"))
    with pytest.warns(UserWarning, match="^the ground is wet$"):
        make(register(warns="the ground is wet"))


def test_making_a_task_loads_no_torch() -> None:
    program = (
        "import sys; from td7 import types; from td7.rollouts import registration; "
        "registration.make(types.Task('HalfCheetah-v4')).reset(0); "
        "sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_task_is_not_blamed_for_an_action_that_is_not_finite() -> None:
    environment = make(Task("toys:Point-v0"))
    environment.reset(0, "episode 0")
    with pytest.raises(EnvironmentFault, match="received an action that is not finite"):
        environment.step(np.full(environment.spec.action_dim, np.nan))

"""Every hyperparameter matters: changed, it changes the result of some run."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box

from td7.algorithms import ALGORITHMS
from td7.algorithms.config import ONLINE_GROUPS
from td7.algorithms.td7 import LEARNING_TARGETS
from td7.datasets.dataset import Dataset
from td7.errors import InputError
from td7.rollouts.environment import ActionMap
from td7.rollouts.registration import describe
from td7.runs.record import DatasetRecord
from td7.training.config import RunConfig
from td7.training.loops import single_process_loop
from td7.training.parts import RunSetup
from td7.training.progress import QuietProgress, Status
from td7.training.resolve import run_config, train_options
from td7.types import RowLayout, Task


class Metronome(gymnasium.Env[Any, Any]):
    """Random states; rewards 2, -1, 2, -1, 2 plus a little luck, whatever the actions.

    Episodes therefore return 4 to 4.5, and values stay within the clip, where noise has an effect.
    """

    observation_space = Box(-np.inf, np.inf, (2,), np.float64)
    action_space = Box(-1.0, 1.0, (1,), np.float64)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        self._luck = self.np_random.uniform(0.0, 0.1)
        return self.np_random.standard_normal(2), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        reward = self._luck + (2.0 if self._steps % 2 else -1.0)
        return self.np_random.standard_normal(2), reward, False, False, {}


gymnasium.register("Metronome-v0", entry_point=f"{__name__}:Metronome", max_episode_steps=5)


def _rows() -> Any:
    """Six episodes of ten such steps; each step of the last episode is worth 60.

    IQL's scaling by the range of returns then leaves rewards small enough for a Huber loss.
    """
    random, n = np.random.default_rng(0), 60
    states = random.standard_normal((n + 1, 2))
    actions = random.uniform(-1.0, 1.0, n)
    rewards = np.where(np.arange(n) % 2, -1.0, 2.0)
    rewards[50:] = 60.0
    not_terminated = np.arange(n) % 10 != 9
    parts = (states[:-1], actions, states[1:], rewards, not_terminated)
    return np.column_stack(parts).astype(np.float32)


DATA = Dataset(
    source="none",
    name="metronome",
    task_id="Metronome-v0",
    task_kwargs=None,
    layout=RowLayout(2, 1),
    bounds=ActionMap((-1.0,), (1.0,)),
    rows=_rows(),
    returns=np.zeros(0),
    lengths=np.zeros(0, np.int64),
    self_collected=True,
    warnings=(),
)

# Small networks; everything happens within ten episodes: a random one, the first checkpoint, the
# late stage from the fourth update on, a target copy every three updates.
BASE: Mapping[str, Any] = {
    "random_steps": 5,
    "batch_size": 8,
    "target_every": 3,
    "embedding_dim": 4,
    "hidden_dim": 8,
    "actor_hidden_dim": 8,
    "critic_hidden_dim": 8,
    "quantiles": 5,
    "ofe_features": 12,
    "late_assessment_episodes": 2,
    "early_updates": 4,
}


class Watch(QuietProgress):
    """Records every distinct state of a run's only seed."""

    def __init__(self) -> None:
        self.seen: dict[tuple[int, int, float], None] = {}  # steps, updates, best

    def show(self, status: Callable[[], Status], *, final: bool = False) -> None:
        (seed,) = status().members
        self.seen[seed.steps, seed.updates, seed.best] = None


# What to compare of finished runs of one seed.
SHOWN: Mapping[str, Callable[[Any], Any]] = {
    "updates": lambda run: run.engine.updates,
    "actor steps": lambda run: run.learner.state()["actor.steps"].tolist(),
    "encoder": lambda run: run.learner.state().get("encoder.parameters", torch.zeros(0)).tolist(),
    "critics": lambda run: run.learner.state()["critic.parameters"].tolist(),
    "actor": lambda run: run.learner.state()["actor.parameters"].tolist(),
    "target critics": lambda run: run.learner.state()["target_critic.parameters"].tolist(),
    "width of zs": lambda run: run.learner.policy_network.widths().get("zs"),
    "size of the actor": lambda run: run.learner.policies().shape,
    "clip": lambda run: run.learner.state().get("clip_max", torch.zeros(0)).tolist(),
    "temperature": lambda run: (
        run.learner.state().get("temperature.parameters", torch.zeros(0)).tolist()
    ),
    "rows": lambda run: run.replay.rows.tolist(),
    "capacity": lambda run: run.replay.capacity,
    "priorities": lambda run: run.replay.leaves.tolist(),
    "late": lambda run: run.members[0].assessment.late,
    "when it trains": lambda run: [(steps, updates) for steps, updates, _ in run.progress.seen],
    "best": lambda run: [best for _, _, best in run.progress.seen],
    "tested": lambda run: run._evaluated_policy(0).value().tolist(),
}

# {algorithm: {field: (another value, what it must change, settings under which it matters)}}
# A new field needs a row. Offline algorithms have no rows for fields that only collecting uses.
LEARNER: Mapping[str, tuple[Any, str]] = {
    "discount": (0.5, "critics"),
    "batch_size": (9, "critics"),
    "learning_rate": (1e-3, "critics"),
}
ONLINE: Mapping[str, tuple[Any, ...]] = {
    **LEARNER,
    "random_steps": (6, "updates"),  # the second episode is random as well
    "replay_capacity": (20, "capacity"),
    "early_assessment_episodes": (2, "when it trains"),
    "late_assessment_episodes": (3, "when it trains"),
    "early_updates": (1000, "late"),
    "late_stage": ("at_once", "when it trains", {"early_updates": 5}),
    "random_phase": ("steps", "updates", {"checkpoints": "none", "random_steps": 7}),
    "criterion_reset_weight": (0.1, "best"),
    "checkpoints": ("mean", "best"),
    "assessments_end_early": (False, "when it trains"),
    "test_policy": ("current", "tested"),
}
TWIN: Mapping[str, tuple[Any, ...]] = {
    **ONLINE,
    "exploration_noise": (0.3, "rows"),
    "target_every": (1000, "clip"),  # never during this run
    "hidden_dim": (9, "size of the actor"),
    "target_noise": (0.1, "critics"),
    "target_noise_clip": (0.1, "critics"),
    "actor_every": (3, "actor steps"),
}
TD3: Mapping[str, tuple[Any, ...]] = {
    **TWIN,
    "critic_activation": ("elu", "critics"),
    "actor_value": ("mean", "actor"),
    "replay": ("lap", "priorities"),
    "priority_exponent": (0.7, "priorities", {"replay": "lap"}),
    "min_priority": (0.5, "priorities", {"replay": "lap"}),
    "value_clipping": (True, "critics"),
    "target_update": ("copy", "target critics"),
    "target_rate": (0.5, "target critics"),
    "encoder": (True, "critics"),
    "embedding_dim": (5, "critics", {"encoder": True}),
}
ENTROPY: Mapping[str, tuple[Any, ...]] = {
    **ONLINE,
    "actor_hidden_dim": (9, "size of the actor"),
    "critic_hidden_dim": (9, "critics"),
    "target_rate": (0.5, "target critics"),
    "target_entropy_per_dimension": (1.0, "temperature"),
    "sale": (True, "critics"),
    "embedding_dim": (5, "critics", {"sale": True}),
    "target_every": (4, "critics", {"sale": True}),
}
COLLECTING = {*ONLINE, "exploration_noise"} - LEARNER.keys()
IN_SAMPLE: Mapping[str, tuple[Any, ...]] = {
    **LEARNER,
    "hidden_dim": (9, "size of the actor"),
    "target_rate": (0.5, "target critics"),
    "advantage_temperature": (1.0, "actor"),
    "largest_weight": (0.5, "actor"),
    "decay_updates": (60, "actor"),
}
MATTERS: Mapping[str, Mapping[str, tuple[Any, ...]]] = {
    "td7": {
        **TWIN,
        "embedding_dim": (5, "width of zs"),
        "priority_exponent": (0.7, "priorities"),
        "min_priority": (0.5, "priorities"),
        "cloning_weight": (0.5, "actor"),
        "critic_activation": ("relu", "critics"),
        "actor_value": ("first", "actor"),
        "replay": ("uniform", "priorities"),
        "value_clipping": (False, "critics"),
        "critic_inputs": (("zsa", "phi"), "critics"),
        "actor_inputs": (("phi",), "size of the actor"),
        "critic_phi_dim": (3, "critics"),
        "zs_norm": ("none", "encoder"),
        "zsa_norm": ("layer", "encoder"),
        "phi_norm": ("batch", "actor"),
        "learning_target": ("next_zsa", "encoder"),
        "encoder_loss": ("cosine", "encoder"),
        "encoder_training": ("frozen", "encoder"),
        "encoder_loss_weight": (3.0, "encoder", {"encoder_training": "end_to_end"}),
        "fixed_embeddings": (False, "critics"),
    },
    "td3": TD3,
    "td3+ofe": {
        **TWIN,
        "critic_activation": ("elu", "critics"),
        "actor_value": ("mean", "actor"),
        "replay": ("lap", "priorities"),
        "priority_exponent": (0.7, "priorities", {"replay": "lap"}),
        "min_priority": (0.5, "priorities", {"replay": "lap"}),
        "value_clipping": (True, "critics"),
        "target_rate": (0.5, "target critics"),
        "ofe_features": (6, "size of the actor"),
        "ofe_layers": (2, "size of the actor"),
        "ofe_predicted_dims": (1, "critics"),
    },
    "sac": ENTROPY,
    "tqc": {
        **ENTROPY,
        "random_phase": ("episode", "updates", {"checkpoints": "none", "random_steps": 7}),
        "critics": (3, "critics"),
        "quantiles": (4, "critics"),
        "dropped_quantiles": (1, "critics"),
    },
    "td3+bc": {
        **{field: row for field, row in TD3.items() if field not in COLLECTING},
        "cloning_alpha": (1.0, "actor"),
    },
    "cql": {
        **LEARNER,
        "policy_learning_rate": (1e-3, "actor"),
        "hidden_dim": (9, "size of the actor"),
        "hidden_layers": (2, "size of the actor"),
        "target_rate": (0.5, "target critics"),
        "target_entropy_per_dimension": (1.0, "temperature"),
        "conservative_weight": (1.0, "critics"),
        "sampled_actions": (3, "critics"),
        "cloning_updates": (9, "actor"),
    },
    "iql": {**IN_SAMPLE, "expectile": (0.9, "critics")},
    "xql": {
        **IN_SAMPLE,
        "gumbel_temperature": (1.0, "critics"),
        "gumbel_clip": (0.1, "critics"),
        "huber_threshold": (0.1, "critics"),
    },
}


@cache
def shown(algorithm: str, *changed: tuple[str, Any]) -> dict[str, Any]:
    """Train with BASE and these changes; return what SHOWN selects of the finished run."""
    task = Task("Metronome-v0")
    collects = ALGORITHMS[algorithm].online
    chosen = ALGORITHMS[algorithm].config
    known = {f.name for f in dataclasses.fields(chosen)}
    settings = {**BASE, **({"checkpoints": "minimum"} if collects else {}), **dict(changed)}
    config = RunConfig(
        algorithm=algorithm,
        variant="",
        task=task,
        seeds=(0,),
        steps=50,
        hyperparameters=chosen(**{k: v for k, v in settings.items() if k in known}),
        evaluate_every=1000,
        evaluation_episodes=1,
        metrics_every=1000,
        device="cpu",
        replay_device="cpu",
        precision="float64",
        engine="eager",
        threads=1,
        dataset=None
        if collects
        else DatasetRecord("none", len(DATA.rows), "", self_collected=False),
    )
    dataset = None if collects else DATA
    with TemporaryDirectory() as folder:
        setup = RunSetup(config, describe(task), Path(folder), Watch(), dataset)
        run = single_process_loop(setup)
        run.restore()
        run.run()
    state = run.learner.state()
    with_temperature = "temperature.parameters" in state
    return {n: show(run) for n, show in SHOWN.items() if n != "temperature" or with_temperature}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_field_is_in_the_table(algorithm: str) -> None:
    fields = {f.name for f in dataclasses.fields(ALGORITHMS[algorithm].config)}
    if not ALGORITHMS[algorithm].online:
        fields -= set(of_collecting(algorithm))
    assert MATTERS[algorithm].keys() == fields


def of_collecting(algorithm: str) -> list[str]:
    """Hyperparameters that only collecting data needs."""
    fields = dataclasses.fields(ALGORITHMS[algorithm].config)
    return [f.name for f in fields if f.metadata["group"] in ONLINE_GROUPS]


@pytest.mark.parametrize("algorithm", ["td7", "td3+bc"])
def test_fields_for_collecting_data_are_refused_with_a_dataset(algorithm: str) -> None:
    """The table has no rows for them; none is ignored silently."""
    given = {"algorithm": algorithm, "env": "Metronome-v0", "device": "cpu"}
    fields = of_collecting(algorithm)
    assert set(fields) == COLLECTING
    for field in fields:
        value = TWIN[field][0]
        with pytest.raises(InputError) as error:
            run_config(train_options({**given, "set": {field: value}}), DATA)
        assert str(error.value) == f"{field}={value} has no effect with dataset"
        # The default is accepted, because config.json contains it.
        default = getattr(run_config(train_options(given), DATA).hyperparameters, field)
        run_config(train_options({**given, "set": {field: default}}), DATA)


def test_other_offline_algorithms_have_no_fields_for_collecting_data() -> None:
    others = [
        a.name for a in ALGORITHMS.values() if a.offline is not None and of_collecting(a.name)
    ]
    assert others == ["td7", "td3+bc"]


def check_matters(algorithm: str, field: str, *more: tuple[str, Any]) -> None:
    value, what, *context = MATTERS[algorithm][field]
    given = tuple({**dict(more), **(context[0] if context else {})}.items())
    changed = shown(algorithm, *given, (field, value))
    assert changed[what] != shown(algorithm, *given)[what]


@pytest.mark.parametrize(
    ("algorithm", "field"), [(name, field) for name in MATTERS for field in MATTERS[name]]
)
def test_every_field_matters(algorithm: str, field: str) -> None:
    check_matters(algorithm, field)


# Values with which fields that need others have no effect.
UNMET: Mapping[str, Any] = {
    "encoder": False,
    "sale": False,
    "replay": "uniform",
    "target_update": "copy",
    "critic_inputs": ("zsa", "zs"),
    "encoder_training": "frozen",
}


def needs_of(algorithm: str, field: str) -> Mapping[str, Any]:
    return ALGORITHMS[algorithm].config.__dataclass_fields__[field].metadata["needs"] or {}


@pytest.mark.parametrize(
    ("algorithm", "field"),
    [(name, field) for name in MATTERS for field in MATTERS[name] if needs_of(name, field)],
)
def test_a_field_without_what_it_needs_changes_nothing_and_is_refused(
    algorithm: str, field: str
) -> None:
    value = MATTERS[algorithm][field][0]
    ((other, wanted),) = needs_of(algorithm, field).items()
    usual = "minimum" if "none" in wanted else "none"  # of checkpoints
    unmet = (other, UNMET.get(other, usual))
    changed, same = shown(algorithm, unmet, (field, value)), shown(algorithm, unmet)
    # `target_every` also ends units of updates, between which a run shows how far it is.
    results = changed.keys() - {"when it trains", "best"}
    assert {n: changed[n] for n in results} == {n: same[n] for n in results}

    given = {"algorithm": algorithm, "env": "Metronome-v0", "device": "cpu"}
    options = train_options({**given, "set": {**dict([unmet]), field: value}})
    dataset = None if ALGORITHMS[algorithm].online else DATA
    with pytest.raises(InputError, match=rf"^{field}={value} has no effect with {other}="):
        run_config(options, dataset)
    meets = (other, wanted[0])
    run_config(train_options({**given, "set": {**dict([meets]), field: value}}), dataset)


@pytest.mark.parametrize("field", [f for f in MATTERS["td7"] if f != "encoder_training"])
def test_every_field_matters_end_to_end(field: str) -> None:
    check_matters("td7", field, ("encoder_training", "end_to_end"))


@pytest.mark.parametrize("weight", [0.9, 0.0])
def test_without_an_early_stage_the_first_assessment_is_late(weight: float) -> None:
    """A random episode of 5 steps, then an assessment of 2 episodes."""
    stage = ("early_updates", 0), ("late_stage", "at_once")
    changed = shown("td7", *stage, ("criterion_reset_weight", weight))
    assert next(steps for steps, updates in changed["when it trains"] if updates) == 15
    assert changed["late"]
    assert not any(map(math.isnan, changed["best"]))


@pytest.mark.parametrize("training", ["decoupled", "end_to_end"])
def test_no_two_learning_targets_are_the_same(training: str) -> None:
    context = ("encoder_training", training)
    encoders = [shown("td7", context, ("learning_target", t))["encoder"] for t in LEARNING_TARGETS]
    assert all(encoders.count(encoder) == 1 for encoder in encoders)


def test_a_run_is_a_function_of_its_config() -> None:
    """Otherwise the tests above would prove nothing."""
    for algorithm in MATTERS:
        assert shown(algorithm, ("discount", 0.99)) == shown(algorithm)

"""Every variant of the paper is a row; every row trains, stacks, compiles and can be saved."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import td7
import toys
from td7.algorithms import algorithm
from td7.algorithms.config import without_effect
from td7.cli.main import main
from td7.configs import build_config
from td7.datasets.download import DATASETS
from td7.engine.cuda import GraphRunner
from td7.engine.engine import Engine
from td7.engine.replay import Replay
from td7.errors import InputError
from td7.reports import paper
from td7.studies.rows import STUDIES, Row, variant
from td7.studies.rows.design import PERCENT_LOSS_LABELS
from td7.types import Float32, RowLayout, Task, TaskSpec
from traced_steps import Step, steps_of_the_package

assert toys  # registers the tasks
TASK = TaskSpec(Task("none"), (5,), (2,), (-1.0,) * 2, (1.0,) * 2, None)
LAYOUT = RowLayout(5, 2)
CPU, CUDA = torch.device("cpu"), torch.device("cuda")
TINY = {"hidden_dim": 8, "embedding_dim": 6, "batch_size": 16, "target_every": 10}
TINY_ENTROPY = {
    "actor_hidden_dim": 8,
    "critic_hidden_dim": 8,
    "batch_size": 16,
    "embedding_dim": 6,
    "target_every": 10,
}
TINY_OF: dict[str, dict[str, int]] = {
    "td7": TINY,
    "td3": TINY,
    "td3+ofe": {**TINY, "ofe_features": 12, "ofe_layers": 2},
    "sac": TINY_ENTROPY,
    "tqc": {**TINY_ENTROPY, "quantiles": 6},
    "td3+bc": TINY,
    "cql": {"hidden_dim": 8, "batch_size": 16, "sampled_actions": 3, "cloning_updates": 9},
    "iql": {"hidden_dim": 8, "batch_size": 16},
    "xql": {"hidden_dim": 8, "batch_size": 16},
}

NAMES = [name for study in STUDIES.values() for name in study.names()]


def settings_of(name: str) -> dict[str, Any]:
    """A row's settings; in an offline study, with the algorithm's offline defaults."""
    row = variant(name)
    is_offline = STUDIES[name.partition("/")[0]].datasets
    offline_defaults = algorithm(row.algorithm).offline if is_offline else None
    return {**row.settings, **(offline_defaults or {})}


def _key(name: str) -> tuple[Any, ...]:
    """What distinguishes a row for the learner: not the replay's size nor the loop's choices."""
    of_loop = {"checkpoints", "test_policy", "assessments_end_early", "replay_capacity"}
    of_loop |= {"early_assessment_episodes", "late_assessment_episodes", "criterion_reset_weight"}
    settings = {k: v for k, v in settings_of(name).items() if k not in of_loop}
    return variant(name).algorithm, *sorted(settings.items())


# One row per distinct learner.
DISTINCT = list({_key(name): name for name in reversed(NAMES)}.values())


# -- the rows ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [s.name for s in STUDIES.values() if s.table])
def test_every_label_of_the_papers_tables_has_its_row(name: str) -> None:
    study = STUDIES[name]
    printed = paper.table(study.table)
    labels = printed["algorithm" if name in ("online", "offline") else "variant"]
    assert list(study.rows) == list(dict.fromkeys(labels))
    if name != "offline":  # whose table is of its one number of updates
        assert max(printed["time_step"]) == study.steps
        assert name == "online" or set(printed["time_step"]) == {study.steps}
    tasks = {task.removesuffix("-v4") for task in study.tasks}
    assert set(printed["environment"]) - {"Total"} == tasks


def test_labels_of_the_other_tables_have_rows() -> None:
    early = paper.table("checkpoints_300k")["variant"]
    assert set(early) < set(STUDIES["checkpoints"].rows)
    losses = paper.table("design_percent_loss")["variant"]
    assert list(PERCENT_LOSS_LABELS) == list(losses)
    design = list(STUDIES["design"].rows)
    assert list(PERCENT_LOSS_LABELS.values()) == design[2:]  # all but the references


def test_the_offline_study_is_of_all_the_papers_data() -> None:
    printed = paper.table("offline").query("environment != 'Total'")
    pairs = dict.fromkeys(zip(printed["environment"], printed["dataset"], strict=True))
    names = [f"{environment}-{dataset}-v2".lower() for environment, dataset in pairs]
    assert list(STUDIES["offline"].datasets) == names == list(DATASETS)


def test_a_row_of_the_offline_study_needs_a_dataset() -> None:
    with pytest.raises(InputError, match="offline/TD7 learns from a dataset: give dataset"):
        td7.train(variant="offline/TD7", env="toys:Point-v0")


def test_the_extrapolation_study_has_each_row_with_both_buffers() -> None:
    """The paper has six figures of it, each with two replays, and no table."""
    rows = STUDIES["extrapolation"].rows
    labels = {label.rpartition(", ")[0] for label in rows}
    assert len(labels) == 6
    for label in labels:
        big, small = rows[f"{label}, 1M"].settings, rows[f"{label}, 100k"].settings
        assert (big["replay_capacity"], small["replay_capacity"]) == (1_000_000, 100_000)
        assert {**big, "replay_capacity": 0} == {**small, "replay_capacity": 0}


def _config(row: Row) -> Any:
    return build_config(algorithm(row.algorithm).config, row.settings)


@pytest.mark.parametrize("name", NAMES)
def test_a_row_changes_only_what_it_declares(name: str) -> None:
    """Every field is compared with the study's row of the same algorithm without changes."""
    row, study = variant(name), STUDIES[name.partition("/")[0]]
    common = {k: v for k, v in row.settings.items() if k not in row.changes}
    reference = build_config(algorithm(row.algorithm).config, common)
    config = _config(row)
    differing = {
        f.name
        for f in dataclasses.fields(config)
        if getattr(config, f.name) != getattr(reference, f.name)
    }
    # These values are the defaults, although their rows name them.
    usual = {"replay_capacity"} if row.settings.get("replay_capacity") == 1_000_000 else set()
    usual |= {"encoder_loss_weight"} if row.label == "End-to-end, 1" else set()
    usual |= {"late_assessment_episodes"} if "20 episodes" in row.label else set()
    assert differing == set(row.changes) - usual
    plain = [r for r in study.rows.values() if r.algorithm == row.algorithm and not r.changes]
    if study.name != "extrapolation":  # whose rows have the one buffer or the other
        assert [dict(r.settings) for r in plain] == [common]


def test_no_two_rows_of_a_study_are_the_same() -> None:
    for study in STUDIES.values():
        configs = [(row.algorithm, _config(row)) for row in study.rows.values()]
        assert len(set(configs)) == len(configs)


def test_there_are_as_many_rows_as_the_paper_has() -> None:
    sizes = {name: len(study.rows) for name, study in STUDIES.items()}
    assert sizes == {
        "online": 5,
        "offline": 5,
        "design": 21 + 2,
        "extrapolation": 6 * 2,
        "checkpoints": 10 + 2,
        "ablation-main": 3 + 2,
        "ablation": 3 + 11 + 2,
        "runtime": 5,
        "beyond": 9,
    }
    assert len(DISTINCT) == 46


# -- the contract --------------------------------------------------------------------------------


def build(
    name: str,
    seeds: Sequence[int] = (0, 1),
    mode: str = "eager",
    device: torch.device = CPU,
    **changes: Any,
) -> Engine:
    """A row's learner at a tiny size, with a replay of made-up transitions."""
    row = variant(name)
    small = {"critic_phi_dim": 3} if "critic_phi_dim" in row.settings else {}
    chosen = algorithm(row.algorithm)
    tiny = {k: v for k, v in TINY_OF[row.algorithm].items() if k in _fields(chosen.config)}
    config = build_config(chosen.config, {**settings_of(name), **tiny, **small, **changes})
    learner = chosen.learner(config, TASK, seeds, device, torch.float64)
    if name in STUDIES["offline"].names():
        replay = Replay(LAYOUT, 150, len(seeds), device, torch.float64, shared=True)
        replay.fill(learner.prepare_rows(random_rows(0), LAYOUT))
    else:
        replay = Replay(LAYOUT, 200, len(seeds), device, torch.float64)
        for m, seed in enumerate(seeds):
            replay.append(m, random_rows(seed))
    # A failure to compile is only a warning in a run; these tests fail on it.
    return Engine(learner, replay, config.batch_size, seeds, mode, warn=pytest.fail)


def random_rows(seed: int) -> Float32:
    rows = np.random.default_rng(seed).standard_normal((150, LAYOUT.width)).astype(np.float32)
    actions = rows[:, LAYOUT.state_dim : LAYOUT.state_dim + LAYOUT.action_dim]
    actions.clip(-1, 1, out=actions)
    rows[:, -1] = rows[:, -1] > -1
    return rows


def _fields(config: type) -> set[str]:
    return {f.name for f in dataclasses.fields(config)}


def run(engine: Engine, updates: int) -> None:
    while engine.updates[0] < updates:
        engine.advance([updates - n for n in engine.updates])


def state(engine: Engine) -> dict[str, Tensor]:
    tensors = {**engine.learner.state(), **engine.state(), "leaves": engine.replay.leaves}
    return {name: tensor.clone() for name, tensor in tensors.items()}


TWINS = {"critic", "actor", "target_critic", "target_actor"}
SOFT = {"critic", "actor", "target_critic", "temperature"}
FIXED = {"encoder", "fixed_encoder", "target_fixed_encoder"}


def td7_moves(s: Mapping[str, Any]) -> set[str]:
    inputs = (*s.get("critic_inputs", ("zsa",)), *s.get("actor_inputs", ("zs",)))
    reads = "zs" in inputs or "zsa" in inputs
    trains = reads and s.get("encoder_training") != "frozen"
    slow = {"slow_encoder"} if s.get("learning_target") == "slow_next_zs" else set()
    return TWINS | (FIXED if trains else set()) | slow


# The networks that a row of an algorithm trains, and those that follow them, by its settings.
MOVES: dict[str, Callable[[Mapping[str, Any]], set[str]]] = {
    **dict.fromkeys(("sac", "tqc"), lambda s: SOFT | (FIXED if s.get("sale") else set())),
    **dict.fromkeys(("iql", "xql"), lambda _: {"value", "critic", "target_critic", "actor"}),
    "cql": lambda _: SOFT,
    "td3+ofe": lambda _: TWINS | {"ofe"},
    "td3": lambda s: TWINS | ({"encoder", "target_encoder"} if s.get("encoder") else set()),
    "td3+bc": lambda _: TWINS,
    "td7": td7_moves,
}


@pytest.mark.parametrize("name", DISTINCT)
def test_a_row_moves_what_it_trains_and_nothing_else(name: str) -> None:
    engine = build(name)
    before = state(engine)
    run(engine, max(35, engine.learner.target_every + 25))  # past every copy, and those of copies
    after = state(engine)
    networks = {n.removesuffix(".parameters") for n in before if n.endswith(".parameters")}
    moved = {
        n for n in networks if (after[f"{n}.parameters"] != before[f"{n}.parameters"]).any(1).all()
    }
    row = variant(name)
    assert moved == MOVES[row.algorithm](row.settings)
    engine.check()
    assert engine.learner.is_prioritised == bool((after["leaves"] != before["leaves"]).any())
    for metric in engine.learner.metrics:
        expected = metric != "encoder_loss" or "encoder" in moved
        assert bool((after[f"metric.{metric}"] != 0).all()) == expected or "clip" in metric, metric


@pytest.mark.parametrize("name", DISTINCT)
def test_a_row_says_which_updates_change_what_acts(name: str) -> None:
    """In lockstep, actions of the other time steps come before their updates."""
    engine = build(name)
    for update in range(1, 7):
        before = engine.learner.policies().clone()
        run(engine, update)
        changed = not torch.equal(engine.learner.policies(), before)
        assert changed == (update % engine.learner.policy_every == 0)


@pytest.mark.parametrize("name", DISTINCT)
def test_a_row_stacks(name: str) -> None:
    """Two stacked members equal each alone, beyond the second target copy."""
    together = build(name)
    run(together, 25)
    for m in (0, 1):
        alone = build(name, seeds=[m])
        run(alone, 25)
        expected = state(alone)
        for tensor_name, tensor in state(together).items():
            close = torch.allclose(tensor[m], expected[tensor_name][0], rtol=1e-7, atol=1e-10)
            assert close, tensor_name


@pytest.mark.parametrize("name", DISTINCT)
def test_a_row_resumes_from_its_state(name: str) -> None:
    """`state()` is complete: another learner filled with it makes the same updates."""
    engine, other = build(name), build(name, learning_rate=3e-4)
    run(engine, 25)  # past two target copies: the first one fills some targets with what they are
    for part, filled in ((engine.learner, other.learner), (engine, other)):
        for tensor_name, tensor in filled.state().items():
            tensor.copy_(part.state()[tensor_name])
    for m in (0, 1):
        other.replay.restore(
            m,
            [engine.replay.rows[m, :150].numpy()],
            150,
            engine.replay.leaves[m, :150],
            engine.replay.max_priority[m],
        )
    other.restore(engine.updates)
    run(engine, 35)
    run(other, 35)
    expected = state(engine)
    assert [n for n, tensor in state(other).items() if not torch.equal(tensor, expected[n])] == []


def check_compiled(name: str, **changes: Any) -> None:
    compiled, eager = build(name, mode="compiled", **changes), build(name, **changes)
    for engine in (compiled, eager):
        run(engine, 24)
    expected = state(eager)
    for tensor_name, tensor in state(compiled).items():
        assert torch.allclose(tensor, expected[tensor_name], rtol=1e-7, atol=1e-10), tensor_name


# Tracing takes seconds per update, and twice as long if some updates leave the actor as it is. So a
# few rows are traced with mechanisms of others, and with an actor that every update trains; slow
# tests compile every row as it is.
TRACED: dict[str, dict[str, Any]] = {
    "design/BatchNorm": {"learning_target": "next_zsa", "zsa_norm": "layer", "actor_every": 1},
    "design/zs'_target": {"encoder_loss": "cosine", "actor_every": 1},
    "design/End-to-end, 1": {
        "learning_target": "next_zs_and_reward",
        "replay": "uniform",
        "actor_every": 1,
    },
    "design/No fixed embeddings": {"learning_target": "next_state", "actor_every": 1},
    "ablation/No SALE": {},
    "ablation/TD3 with encoder": {"replay": "lap", "value_clipping": True},
    "online/TD3+OFE": {},
    "online/SAC": {},
    "beyond/TQC + SALE": {},
    "offline/TD7": {"actor_every": 1},
    "offline/CQL": {"hidden_layers": 2},
    "offline/TD3+BC": {"actor_every": 1, "target_update": "copy"},
    "offline/IQL": {},
    "offline/X-QL": {},
}


@pytest.mark.parametrize("name", TRACED)
@pytest.mark.usefixtures("traced")
def test_a_row_is_traced_whole(name: str) -> None:
    """The compiler traces a whole update, and the traced update equals the eager one."""
    check_compiled(name, **TRACED[name])


def test_what_is_traced_has_every_mechanism() -> None:
    """Every line, branch and operation of the updates of all rows."""

    def mechanisms(name: str, **changes: Any) -> set[Step]:
        engine = build(name, **changes)
        with steps_of_the_package() as steps:
            run(engine, 3)
        return steps

    traced = set[Step]().union(*(mechanisms(name, **TRACED[name]) for name in TRACED))
    for name in DISTINCT:
        assert mechanisms(name) <= traced, name


@pytest.mark.slow
@pytest.mark.parametrize("name", DISTINCT)
def test_a_row_compiles(name: str) -> None:
    torch.compiler.reset()
    check_compiled(name)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", [*STUDIES["online"].names(), *STUDIES["offline"].names()])
def test_an_agent_captured_and_stacked_is_itself_eager_and_alone(name: str) -> None:
    torch.compiler.reset()
    together = build(name, mode="graph", device=CUDA)
    run(together, 50)
    assert isinstance(together._runner, GraphRunner)
    assert together._runner.works
    actual = state(together)
    for m in (0, 1):
        alone = build(name, seeds=[m], device=CUDA)
        run(alone, 50)
        for tensor_name, tensor in state(alone).items():
            close = torch.allclose(actual[tensor_name][m], tensor[0], rtol=1e-7, atol=1e-10)
            assert close, tensor_name


# -- from the command line -----------------------------------------------------------------------

ONLINE_ROWS = STUDIES["online"].names()


@pytest.mark.parametrize(
    "name", [*ONLINE_ROWS, "design/zs'a'", "ablation/Our TD3", "ablation/Current policy"]
)
def test_a_variant_trains_and_resumes(tmp_path: Path, name: str) -> None:
    path = tmp_path / "run"
    words = ["train", "--variant", name, "--env", "toys:Point-v0", "--steps", "60", "--quiet"]
    words += ["--evaluate-every", "20", "--evaluation-episodes", "1", "--out", str(path)]
    row = variant(name)
    config = algorithm(row.algorithm).config
    settings = {**TINY_OF[row.algorithm], "random_steps": 20}
    known = {k: v for k, v in settings.items() if k in _fields(config)}
    useless = without_effect(config, {**known, **row.settings}, known)
    assignments = [f"{k}={v}" for k, v in known.items() if k not in useless]
    assert main([*words, "--set", *assignments]) == 0
    assert main(["resume", str(path), "--steps", "80", "--quiet"]) == 0
    run = td7.Run(path)
    assert run.config["variant"] == name
    assert run.config["algorithm"] == variant(name).algorithm
    assert run.evaluations["step"].max() == 80
    assert "policy_value" in run.metrics


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"variant": "design/s"}, "unknown row of design 's'; did you mean \"s'\"?"),
        ({"variant": "desing/s'"}, "unknown study 'desing'; did you mean 'design'?"),
        ({"variant": "design"}, "a variant is STUDY/LABEL"),
        ({"variant": "design/s'", "algorithm": "td3"}, "is a variant of td7, given td3"),
        ({"variant": "design/s'", "set": {"learning_target": "next_zs"}}, "itself"),
        ({"variant": "design/s'", "set": {"checkpoints": "mean"}}, "sets checkpoints=none itself"),
        (
            {"set": {"critic_inputs": "zsa,zs,phy"}},
            "unknown critic_inputs 'phy'; did you mean 'phi'",
        ),
        ({"set": {"critic_inputs": ""}}, "unknown critic_inputs ''"),
        ({"set": {"actor_inputs": "zs,zs"}}, "actor_inputs takes distinct words such as a,b"),
    ],
)
def test_a_wrong_variant_is_one_line(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as raised:
        td7.train(env="toys:Point-v0", out=str(tmp_path / "run"), **options)
    assert message in str(raised.value)
    assert not (tmp_path / "run").exists()


def test_studies_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "studies"]) == 0
    listing = capsys.readouterr().out
    for name, study in STUDIES.items():
        assert name in listing
        assert main(["list", "studies", name]) == 0
        rows = capsys.readouterr().out
        assert all(f"  {label}  " in rows for label in study.rows)
        assert all(f"  {row.algorithm}  " in rows for row in study.rows.values())
        assert study.where in rows
        assert f"{study.steps:,} {'updates' if name == 'offline' else 'steps'} of " in rows
        if study.datasets:  # the file that its study looks for
            file = DATASETS[study.datasets[0]].file
            assert f"td7 dataset fetch {study.datasets[0]}\n" in rows
            assert f"--dataset datasets/{file}\n" in rows
    assert main(["list", "studies", "desing"]) == 2
    assert "did you mean 'design'" in capsys.readouterr().err
    assert main(["list", "tasks", "design"]) == 2

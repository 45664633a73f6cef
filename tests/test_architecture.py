"""docs/extend: the recipes of its pages run, and what they name exists."""

import importlib
import inspect
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import td7
import toys
from fake_runs import write_run
from folders import contents, differences
from td7.algorithms import ALGORITHMS
from td7.algorithms.learner import Turn
from td7.algorithms.td7 import TD7
from td7.cli.main import main
from td7.engine.engine import Engine
from td7.engine.replay import Replay
from td7.errors import InputError
from td7.networks.description import Layout
from td7.networks.numpy_actor import Actor
from td7.networks.stacked import apply, unflatten
from td7.reports.report import read_report
from td7.rollouts.registration import describe
from td7.studies.rows import STUDIES
from td7.types import RowLayout, Task
from test_layers import LAYERS
from test_structure import ROOT

assert toys  # registers the tasks
FOLDER = ROOT / "docs" / "extend"
PAGE, ALGORITHM_PAGE, STUDY_PAGE = (
    (FOLDER / name).read_text() for name in ("architecture.md", "algorithm.md", "study.md")
)
ABSOLUTE, TRAIN_ABSOLUTE, SCALED, TRAIN_SCALED, SCRIPT, CHECKS = re.findall(
    r"```python\n(.*?)```", ALGORITHM_PAGE, re.DOTALL
)
STUDY, TRAIN_STUDY = re.findall(r"```python\n(.*?)```", STUDY_PAGE, re.DOTALL)
MODULE = (FOLDER / "examples" / "ddpg.py").read_text()
CPU = torch.device("cpu")
SPEC = describe(Task("toys:Point-v0"))
NETWORKS = ("critic", "actor", "target_critic", "target_actor")


@pytest.fixture(scope="module")
def ddpg(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The page's module, imported as a user imports it, and removed afterwards."""
    folder = tmp_path_factory.mktemp("architecture")
    (folder / "ddpg.py").write_text(MODULE)
    sys.path.insert(0, str(folder))
    try:
        yield importlib.import_module("ddpg")
    finally:
        sys.path.remove(str(folder))
        sys.modules.pop("ddpg", None)
        ALGORITHMS.pop("ddpg", None)


def build(ddpg: Any, seeds: tuple[int, ...]) -> Engine:
    """Eager, in float64, on the seeds' own made-up transitions."""
    config = ddpg.DDPGConfig(hidden_dim=16, batch_size=16)
    learner = ddpg.DDPG(config, SPEC, seeds, CPU, torch.float64)
    layout = RowLayout(SPEC.state_dim, SPEC.action_dim)
    replay = Replay(layout, 200, len(seeds), CPU, torch.float64)
    for m, seed in enumerate(seeds):
        rows = np.random.default_rng(seed).standard_normal((150, layout.width)).astype(np.float32)
        rows[:, -1] = rows[:, -1] > -1
        replay.append(m, rows)
    return Engine(learner, replay, config.batch_size, seeds)


def run(engine: Engine, wanted: tuple[int, ...]) -> dict[str, Tensor]:
    """The state after the wanted number of updates of each member."""
    while any(left := [n - done for n, done in zip(wanted, engine.updates, strict=True)]):
        engine.advance(left)
    return {name: tensor.clone() for name, tensor in engine.learner.state().items()}


def test_every_network_of_the_example_moves(ddpg: Any) -> None:
    engine = build(ddpg, (0, 1))
    before = run(engine, (0, 0))
    after = run(engine, (300, 300))
    engine.check()
    names = {n.removesuffix(".parameters") for n in after if n.endswith(".parameters")}
    assert names == set(NETWORKS)
    for name in names:
        moved = after[f"{name}.parameters"] != before[f"{name}.parameters"]
        assert moved.any(dim=1).all(), name
    assert all(bool((metric != 0).all()) for metric in engine.learner.recorded.values())


def test_the_example_stacks(ddpg: Any) -> None:
    """Stacked members with different counts equal the same members trained alone."""
    counts = (270, 31)
    together = run(build(ddpg, (3, 7)), counts)
    for m, (seed, count) in enumerate(zip((3, 7), counts, strict=True)):
        for name, tensor in run(build(ddpg, (seed,)), (count,)).items():
            assert torch.allclose(together[name][m], tensor[0], rtol=1e-7, atol=1e-10), name


def test_an_update_of_the_example_by_hand(ddpg: Any) -> None:
    """The critic's first loss and the targets' first step, computed from the weights."""
    learner = build(ddpg, (0,)).learner
    flat = {name: learner.state()[f"{name}.parameters"].clone() for name in NETWORKS}
    random = np.random.default_rng(1)
    sizes = (SPEC.state_dim, SPEC.action_dim, SPEC.state_dim, 1)
    parts = [torch.from_numpy(random.standard_normal((1, 16, n))) for n in sizes]
    batch = ddpg.Batch(*parts, torch.ones(1, 16, 1, dtype=torch.float64))

    def q(state: Tensor, action: Tensor) -> Tensor:
        critic = unflatten(Layout.of(learner.critic_network), flat["critic"])  # type: ignore[attr-defined]
        return apply(learner.critic_network, critic, state=state, action=action)  # type: ignore[attr-defined]

    actor = Actor(learner.policy_network, flat["actor"][0].numpy())
    next_action = torch.from_numpy(actor(batch.next_state[0].numpy())).unsqueeze(0)
    y = batch.reward + 0.99 * q(batch.next_state, next_action)
    expected = (q(batch.state, batch.action) - y).square().mean()
    learner.update(batch, {}, Turn())
    assert torch.allclose(learner.recorded["critic_loss"], expected)
    for name in ("critic", "actor"):
        now = learner.state()[f"{name}.parameters"]
        wanted = flat[name] + 0.005 * (now - flat[name])
        assert torch.allclose(learner.state()[f"target_{name}.parameters"], wanted)


@pytest.mark.parametrize("checkpoints", ["none", "minimum"])
@pytest.mark.usefixtures("ddpg")
def test_the_example_trains_and_resumes(
    checkpoints: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page's script on a toy with two seeds: 300 steps and 60 more equal 360 at once."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(compile(script(checkpoints, 300, "run"), "algorithm.md", "exec"), names)
    assert names["run"].config["engine"] == "eager"
    assert names["run"].metrics["update"].max() >= 200
    td7.resume("run", steps=360, quiet=True)
    exec(compile(script(checkpoints, 360, "longer"), "algorithm.md", "exec"), {})
    assert differences(contents(Path("run")), contents(Path("longer"))) == []
    action, _ = td7.load("run", seed=1).predict([0.3, -0.2])
    assert action.shape == (2,)


def script(checkpoints: str, steps: int, out: str) -> str:
    """The page's script at a small size."""
    small = f'"random_steps": 40, "hidden_dim": 16, "checkpoints": "{checkpoints}"'
    options = (
        f"steps={steps}, seeds=(0, 1), evaluate_every=100, metrics_every=20, quiet=True, "
        f'out="{out}"'
    )
    code: str = "import td7\n" + SCRIPT
    for pattern, words in (
        ("InvertedPendulum-v5", "toys:Point-v0"),
        ("steps=4_000", options),
        ('"random_steps": 1_000', small),
    ):
        assert code.count(pattern) == 1, pattern
        code = code.replace(pattern, words)
    return code


def test_commands_find_the_example_by_its_modules_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`td7 train` and `td7 resume` in processes of their own import the module."""
    (tmp_path / "ddpg.py").write_text(MODULE)
    small = ["--steps", "60", "--quiet", "--set", "random_steps=40", "hidden_dim=16"]
    options = ["--env", "toys:Point-v0", "--evaluation-episodes", "1", "--out", "run", *small]
    for words in (["train", "ddpg:ddpg", *options], ["resume", "run", "--steps", "80", "--quiet"]):
        done = subprocess.run(
            [sys.executable, "-m", "td7", *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
    assert json.loads((tmp_path / "run" / "config.json").read_text())["algorithm"] == "ddpg:ddpg"
    assert td7.load(tmp_path / "run").spec.task.id == "toys:Point-v0"
    (result,) = read_report([tmp_path / "run"]).results
    assert result.label == "DDPG"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "nowhere:ddpg",
            "algorithm 'nowhere:ddpg': module 'nowhere' cannot be imported: "
            "ModuleNotFoundError: No module",
        ),
        ("json:td8", "unknown algorithm 'td8'; did you mean 'td7'?"),
    ],
)
def test_a_module_without_the_algorithm(
    name: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", name, "--env", "toys:Point-v0"]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.usefixtures("ddpg")
def test_a_report_names_the_examples_changes_if_the_module_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = {"target_rate": 0.5}
    folder = write_run(tmp_path / "run", {0: [1.0, 2.0]}, algorithm="ddpg", changed=changed)
    (result,) = read_report([folder]).results
    assert result.label == "DDPG, target_rate 0.5"
    monkeypatch.delitem(ALGORITHMS, "ddpg")
    (result,) = read_report([folder]).results
    assert result.label == "DDPG"


@pytest.fixture
def module_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Any]]:
    """A block of a page that begins with `# NAME.py`, imported as the module of that name."""
    names: list[str] = []
    registries: tuple[dict[str, Any], ...] = (ALGORITHMS, STUDIES)
    before = [dict(registry) for registry in registries]
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)

    def module_of(block: str) -> Any:
        (name,) = re.findall(r"\A# (\w+)\.py$", block, re.MULTILINE)
        names.append(name)
        (tmp_path / f"{name}.py").write_text(block)
        return importlib.import_module(name)

    yield module_of
    for name in names:
        sys.modules.pop(name, None)
    for registry, entries in zip(registries, before, strict=True):
        registry.clear()
        registry.update(entries)


def run_block(code: str, **changes: str) -> dict[str, Any]:
    """Execute a block with `name=` of its arguments followed by another value."""
    for name, value in changes.items():
        code, count = re.subn(
            rf"\b{name}=(?:range\(\d+\)|[^,()]+)(?=[,)])", f"{name}={value}", code
        )
        assert count == 1, name
    names: dict[str, Any] = {"td7": td7}
    exec(compile(code, "docs/extend", "exec"), names)
    return names


SMALL = {
    **{"hidden_dim": 8, "embedding_dim": 8, "batch_size": 8},
    **{"random_steps": 30, "target_every": 20},
}
RUN: dict[str, Any] = {
    **{"env": "toys:Point-v0", "steps": 90, "evaluate_every": 90, "evaluation_episodes": 1},
    **{"metrics_every": 1, "quiet": True, "set": SMALL},
}


def test_a_subclass_changes_one_loss_of_td7(
    module_of: Callable[[str], Any], tmp_path: Path
) -> None:
    """|e| and e^2 have another first value, from the same weights and the same batch."""
    module_of(ABSOLUTE)
    first = {
        name: td7.train(name, out=str(tmp_path / name), **RUN).metrics.iloc[0]
        for name in ("td7", "td7-l1")
    }
    assert first["td7"]["critic_loss"] == first["td7-l1"]["critic_loss"]
    assert 0 < first["td7"]["encoder_loss"] != first["td7-l1"]["encoder_loss"] > 0
    small = f"90, quiet=True, set={SMALL}"
    run = run_block(TRAIN_ABSOLUTE, seeds="(0,)", steps=small)["run"]
    assert run.config["algorithm"] == "td7-l1"


def test_a_subclass_adds_a_hyperparameter(module_of: Callable[[str], Any], tmp_path: Path) -> None:
    """A scale of 1 changes nothing; the page's scale shrinks the targets of the first updates."""
    module_of(SCALED)
    out = {name: str(tmp_path / name) for name in ("td7", "td7-scaled")}
    plain, scaled = (td7.train(name, out=out[name], **RUN).metrics for name in out)
    assert (plain == scaled).all(axis=None)
    words = f"{{**{SMALL}, 'reward_scale': 0.1}}"
    shrunk = run_block(TRAIN_SCALED.replace('{"reward_scale": 0.1}', words), steps="90, quiet=True")
    assert shrunk["run"].config["hyperparameters"]["reward_scale"] == 0.1
    both = td7.train("td7-scaled", out=tmp_path / "both", vary={"reward_scale": [0.1, 1.0]}, **RUN)
    targets = both.metrics.groupby("reward_scale")["value_target"].first()
    assert targets[1.0] == pytest.approx(plain["value_target"].iloc[0], rel=1e-4)
    assert abs(targets[0.1]) < abs(targets[1.0])


@pytest.mark.usefixtures("ddpg")
def test_the_pages_checks_find_nothing_in_the_example(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code = CHECKS
    for size, smaller in (("2_000", "300"), ("1_000", "150"), ("500", "50")):
        code = code.replace(size, smaller)
    code = code.replace('"hidden_dim": 16', '"hidden_dim": 16, "batch_size": 16')
    names = run_block(code.replace('"precision"', '"quiet": True, "precision"'))
    assert len(names["alone"].evaluations) >= 7
    assert names["alone"].config["hyperparameters"]["hidden_dim"] == 16


def test_the_methods_that_the_page_names_exist() -> None:
    signatures = re.findall(r"\| `(\w+)\(([^)]*)\)` \|", ALGORITHM_PAGE)
    assert len(signatures) == 6
    for method, parameters in signatures:
        assert ["self", *parameters.split(", ")] == list(
            inspect.signature(getattr(TD7, method)).parameters
        ), method


def test_a_study_is_data(
    module_of: Callable[[str], Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The page's study trains in processes of its own; a report has its title and its labels."""
    study = module_of(STUDY).DISCOUNT
    small = "(0,), env='toys:Point-v0', engine='eager', at_once=2, steps=90, quiet=True, "
    small += f"evaluate_every=90, evaluation_episodes=1, set={SMALL}"
    run_block(TRAIN_STUDY, seeds=small)
    assert "2 runs are done" in capsys.readouterr().out
    results = read_report([tmp_path / "studies"]).results
    assert [(r.study, r.label) for r in results] == [("discount", label) for label in study.rows]
    discounts = [r.record.hyperparameters["discount"] for r in results]
    assert discounts == [0.99, 0.97]
    written = (tmp_path / "report" / "report.md").read_text()
    assert "How far TD7 looks ahead" in written
    assert "| 0.97 |" in written
    with pytest.raises(InputError, match=r"sets discount=0\.97 itself"):
        td7.train(variant="discount/0.97", discount=0.9, **RUN)


def test_commands_find_a_study_by_its_modules_name(
    module_of: Callable[[str], Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The page's commands: those that list and plan here, the one that trains in a process."""
    module_of(STUDY)
    *others, train = re.findall(r"^td7 (.* discount:discount.*)$", STUDY_PAGE, re.M)
    assert len(others) == 3
    for command in others:
        words = shlex.split(command)
        assert main([*words, *(["--dry-run"] if words[0] == "study" else [])]) == 0
        assert "0.97" in capsys.readouterr().out
    small = ["--steps", "60", "--quiet", "--out", "run", "--set"]
    small += [f"{name}={value}" for name, value in SMALL.items()]
    done = subprocess.run(
        [sys.executable, "-m", "td7", *shlex.split(train), *small],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    (result,) = read_report([tmp_path / "run"]).results
    assert (result.study, result.label) == ("discount", "0.97")


def test_the_page_is_a_map_of_the_tree() -> None:
    """Its table of layers is the tests'; every file and every folder that it names exists."""
    (table, _) = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
    assert table.strip() == LAYERS.strip()
    lines = PAGE.splitlines()
    assert len(lines) <= 250
    assert max(map(len, lines)) <= 100
    folder = ROOT / "src" / "td7"
    for paragraph in PAGE.partition("## One training step")[0].split("\n\n"):
        here = folder
        if match := re.match(r"\*\*(\w+)/\*\*", paragraph):
            here = folder / match[1]
        for name in re.findall(r"`([\w/]+\.py)`", paragraph):
            assert any((place / name).exists() for place in (here, folder, ROOT)), name
        for name in re.findall(r"`(\w+)/`", paragraph):
            assert (here / name).is_dir(), name
    for name in re.findall(r"`((?:algorithms|runs|tests|studies)/[\w/]+\.py)`", PAGE):
        assert (folder / name).exists() or (ROOT / name).exists(), name

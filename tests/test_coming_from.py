"""The pages for users of other programs: their tables of names, their programs, their numbers."""

import dataclasses
import inspect
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import td7
from doc_blocks import DOCS, ROOT, blocks, make_dataset, small_sizes
from td7.algorithms import ALGORITHMS
from td7.aliases import ALIASES, plain
from td7.cli.main import whole_parser
from td7.datasets.read import read
from td7.options import TrainOptions

PAGES = ("stable-baselines3", "d3rlpy", "cleanrl", "authors-td7")


class Name(NamedTuple):
    """A row of a table of names."""

    theirs: str
    ours: str


def page(name: str) -> str:
    return f"docs/coming-from/{name}.md"


def text(name: str) -> str:
    return (ROOT / page(name)).read_text(encoding="utf-8")


def names(name: str) -> list[Name]:
    """The rows of the page's table of names, whose last column is called remark."""
    (table,) = re.findall(
        r"^\|[^|\n]+\| td7 \| remark \|\n\|[-|]+\|\n((?:\|.*\n)+)", text(name), re.M
    )
    found = [re.match(r"\| `([^`]+)` \| `([^`]+)` \| ", row) for row in table.splitlines()]
    assert all(found)
    return [Name(*match.groups()) for match in found if match]


EVERY_NAME = [pytest.param(row, id=f"{name}:{row.theirs}") for name in PAGES for row in names(name)]


# -- names -----------------------------------------------------------------------------------------


def our_names() -> set[str]:
    """Every option of a command, and every hyperparameter."""
    fields = {f.name for f in dataclasses.fields(TrainOptions)}
    for algorithm in ALGORITHMS.values():
        fields |= {f.name for f in dataclasses.fields(algorithm.config)}
    (commands,) = (a for a in whole_parser()._actions if isinstance(a.choices, dict))
    assert isinstance(commands.choices, dict)
    for parser in commands.choices.values():
        fields |= {plain(option) for option in parser._option_string_actions}
    return fields


@pytest.mark.parametrize("row", EVERY_NAME)
def test_td7_suggests_the_names_of_the_tables(row: Name) -> None:
    theirs, ours = plain(row.theirs).removeprefix("no_"), plain(row.ours)
    assert ours in our_names()
    if theirs != ours:
        assert ours in ALIASES[theirs]


def parameters(function: Callable[..., Any]) -> set[str]:
    return set(inspect.signature(function).parameters)


def test_stable_baselines3_has_these_names() -> None:
    sb3 = pytest.importorskip("stable_baselines3")
    contrib = pytest.importorskip("sb3_contrib")
    callbacks = sb3.common.callbacks
    known = {"net_arch", "n_critics", "n_quantiles"}  # of the policy, in policy_kwargs
    assert known <= parameters(contrib.tqc.policies.TQCPolicy)
    for model in (sb3.TD3, sb3.SAC, contrib.TQC):
        known |= parameters(model) | parameters(model.learn)
    known |= parameters(callbacks.EvalCallback) | parameters(callbacks.CheckpointCallback)
    assert {row.theirs for row in names("stable-baselines3")} <= known


def test_d3rlpy_has_these_names() -> None:
    d3rlpy = pytest.importorskip("d3rlpy")
    algos = d3rlpy.algos
    known = parameters(algos.IQL.fit) | parameters(algos.IQLConfig.create)
    for config in (algos.TD3PlusBCConfig, algos.IQLConfig, algos.CQLConfig):
        known |= {f.name for f in dataclasses.fields(config)}
    assert {row.theirs for row in names("d3rlpy")} <= known


# -- programs --------------------------------------------------------------------------------------


def theirs(name: str) -> Iterator[str]:
    """The Python blocks of the page that no other test runs."""
    for block in blocks(page(name)):
        if block.language == "python" and block.not_run is not None:
            yield block.code


def run_small(code: str, sizes: Mapping[str, str], variables: dict[str, Any]) -> None:
    """Run a program with other numbers, each of which it must have."""
    for written, small in sizes.items():
        assert written in code
        code = code.replace(written, small)
    exec(code, variables)


@pytest.mark.filterwarnings("ignore")  # of the other library
def test_the_program_of_stable_baselines3_runs(working_folder: Path) -> None:
    pytest.importorskip("stable_baselines3")
    (program,) = theirs("stable-baselines3")
    variables: dict[str, Any] = {}
    sizes = {"20_000": "120", "learning_starts=1_000": "learning_starts=100"}
    run_small(program, {**sizes, "5_000": "60", "episodes=10": "episodes=1"}, variables)
    assert variables["action"].shape == (1,)
    assert (working_folder / "sac.zip").exists()
    assert (working_folder / "logs").exists()


@pytest.mark.filterwarnings("ignore")  # of the other library
def test_the_programs_of_d3rlpy_run(working_folder: Path) -> None:
    pytest.importorskip("d3rlpy")
    file = working_folder / "hopper_medium-v2.hdf5"
    make_dataset(file, "")
    program, conversion = theirs("d3rlpy")
    variables: dict[str, Any] = {}
    run_small(program, {"1_000_000": "4", "5_000": "2", "trials=10": "trials=1"}, variables)
    assert variables["action"].shape == (3,)
    run_small(conversion, {}, variables)
    before, after = read(str(file)), read(str(working_folder / "mine.hdf5"))
    assert variables["dataset"].transition_count == len(before.rows)
    # The written file lacks the next states, which only a whole episode gives.
    layout = before.layout
    states = slice(0, layout.state_dim + layout.action_dim)
    np.testing.assert_array_equal(after.rows[:, states], before.rows[:, states])
    np.testing.assert_array_equal(after.returns, before.returns)


def test_results_of_the_authors_program_are_compared(
    working_folder: Path, example_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(example_run, working_folder / "runs" / "cheetah")
    (working_folder / "results").mkdir()
    steps = td7.Run(example_run).evaluations["step"].max()
    for seed in range(2):
        returns = np.random.default_rng(seed).normal(5, 1, (61, 10))
        np.save(working_folder / "results" / f"TD7_HalfCheetah-v4_{seed}.npy", returns)
    (program,) = theirs("authors-td7")
    run_small(program, {"range(10)": "range(2)", "300_000": str(steps)}, {})
    assert re.fullmatch(r"td7 \d+ ± \d+, theirs 5 ± \d+, p \d\.\d\d\n", capsys.readouterr().out)


def test_a_copied_algorithm_is_the_same(
    working_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(working_folder)
    monkeypatch.setitem(ALGORITHMS, "mine", ALGORITHMS["td7"])  # removed after the test
    (end,) = theirs("cleanrl")
    source = (ROOT / "src/td7/algorithms/td7.py").read_text()
    (working_folder / "my_td7.py").write_text(f"{source}\n{end}")
    with small_sizes():
        copies = [
            td7.train(name, env="InvertedPendulum-v5", random_steps=40, out=str(i))
            for i, name in enumerate(("td7", "my_td7:mine"))
        ]
    assert ALGORITHMS["mine"].learner is not ALGORITHMS["td7"].learner
    for table in ("metrics.csv", "evaluations.csv", "episodes.csv"):
        first, second = ((run.path / table).read_bytes() for run in copies)
        assert first == second
        assert first.count(b"\n") > 1


# -- numbers ---------------------------------------------------------------------------------------


def test_returns_are_those_of_the_results() -> None:
    results = (DOCS / "reproduction" / "online.md").read_text()
    quoted = re.findall(r"\d+ ± \d+", text("authors-td7"))
    assert len(quoted) == 6
    assert all(number in results for number in quoted)


@pytest.mark.parametrize(
    ("name", "agents"),
    [("stable-baselines3", ("td3", "sac", "tqc")), ("d3rlpy", ("td3+bc", "iql", "cql"))],
)
def test_speeds_are_those_of_the_measurements(name: str, agents: tuple[str, ...]) -> None:
    measured = (ROOT / "results/bench/README.md").read_text()
    (speed,) = re.findall(r"^- \*\*Speed\.\*\*.*\n(?:  .*\n)+", text(name), re.M)
    for engine in ("compiled", "eager"):
        for agent in agents:
            row = re.search(rf"^\| {re.escape(agent)} \| {engine} \|.*$", measured, re.M)
            assert row
            assert row[0].split(" | ")[5] in speed

"""A run whose hyperparameters vary, read back: in Python, by the commands, by loggers."""

import dataclasses
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

import td7
import toys
from doc_blocks import ROOT
from fake_runs import INTERVAL, write_run, write_varied_run
from folders import SMALL
from td7.algorithms import ALGORITHMS
from td7.cli.main import main
from td7.runs.loggers.services import LoggedRun
from td7.runs.members import Members, listed
from td7.runs.record import RunRecord

assert toys  # registers the tasks
VALUES = [(0.001, 0.9), (0.001, 0.99), (0.0003, 0.9), (0.0003, 0.99)]  # learning rate, discount
MEMBERS = [(*values, seed) for values in VALUES for seed in (0, 2)]
NUMBER, RATE, DISCOUNT, SEED = 5, 0.0003, 0.9, 2  # of one member; member 2 has the other seed
MEANS = {(0.001, 0.9): 1000.0, (0.001, 0.99): 3000.0, (0.0003, 0.9): 2000.0}
FEW: dict[str, Any] = {
    **{"env": "toys:Point-v0", "steps": 80, "evaluate_every": 40, "evaluation_episodes": 2},
    **{"set": SMALL, "quiet": True},
}

Prints = Callable[..., str]


class Received(list[tuple[str, dict[str, float]]]):
    def __call__(self, table: str, rows: list[dict[str, float]]) -> None:
        self.extend((table, row) for row in rows)


@pytest.fixture(scope="module")
def received() -> Received:
    return Received()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, received: Received) -> td7.Run:
    """Four configurations of two seeds, which nobody changes."""
    return td7.train(
        **FEW,
        seeds=(0, 2),
        vary={"learning_rate": (0.001, 0.0003), "discount": (0.9, 0.99)},
        keep_policies=40,
        metrics_every=10,
        tensorboard=True,
        listener=received,
        out=tmp_path_factory.mktemp("vary") / "run",
    )


@pytest.fixture
def by_hand(tmp_path: Path) -> td7.Run:
    return td7.Run(write_varied_run(tmp_path / "hand", MEANS, ("learning_rate", "discount")))


@pytest.fixture
def prints(capsys: pytest.CaptureFixture[str]) -> Prints:
    """Runs `td7` with these words; gives back what it prints, or its one line of an error."""

    def printed(*words: object, status: int = 0) -> str:
        capsys.readouterr()
        assert main(list(map(str, words))) == status
        out, err = capsys.readouterr()
        if not status:
            return out
        (line,) = err.splitlines()
        return line

    return printed


# -- in Python -----------------------------------------------------------------------------------


def test_a_summary_by_hand(by_hand: td7.Run) -> None:
    table = by_hand.summary()
    assert list(table) == ["seed", "learning_rate", "discount", "first", "best", "last"]
    assert table.index.tolist() == [*range(6), *["mean", "interval"] * 3]
    assert table["last"].tolist()[:6] == [900, 1100, 2900, 3100, 1900, 2100]
    assert table["seed"].tolist()[:6] == [0, 1] * 3
    means, intervals = (table[table.index == name] for name in ("mean", "interval"))
    assert means[["learning_rate", "discount"]].to_numpy().tolist() == list(map(list, MEANS))
    assert means["last"].tolist() == [1000, 3000, 2000]
    assert intervals["last"].tolist() == pytest.approx([INTERVAL] * 3)
    assert table.attrs == {"step": 1_000_000}


def test_the_last_returns_are_by_member(by_hand: td7.Run) -> None:
    last = by_hand.final()
    assert last.index.name == "member"
    assert last.to_dict() == {0: 900, 1: 1100, 2: 2900, 3: 3100, 4: 1900, 5: 2100}


def test_a_curve_per_configuration_the_best_first(by_hand: td7.Run) -> None:
    figure = by_hand.plot()
    (axes,) = figure.axes
    labels = [line.get_label() for line in axes.lines]
    assert labels == [
        "learning_rate 0.001, discount 0.99",
        "learning_rate 0.0003, discount 0.9",
        "learning_rate 0.001, discount 0.9",
    ]
    assert np.asarray(axes.lines[0].get_ydata())[-1] == 3000
    assert axes.get_ylabel().endswith("(mean ± 1.96 sd/√n of 2 seeds)")
    assert len({line.get_color() for line in axes.lines}) == 3


def test_a_figure_shows_the_best_and_says_so(tmp_path: Path) -> None:
    """Names show only what differs, with three digits where these tell values apart."""
    means = {(0.1 + i / 30, 0.5): 100.0 * i for i in range(32)}
    path = write_varied_run(tmp_path / "run", means, ("learning_rate", "discount"))
    (axes,) = td7.Run(path).plot().axes
    assert axes.get_title().endswith("\nthe best 6 of 32 configurations, by the last evaluation")
    assert [line.get_label() for line in axes.lines][:2] == [
        "learning_rate 1.13",
        "learning_rate 1.1",
    ]
    assert len(axes.lines) == 6


def test_a_notebook_names_the_best(by_hand: td7.Run) -> None:
    shown = by_hand._repr_html_()
    assert "best of 3 configurations, learning_rate 0.001, discount 0.99: return 3,000.0" in shown
    assert "3 configurations, seeds 0, 1, finished" in shown


def test_what_has_no_evaluation_is_one_line(tmp_path: Path) -> None:
    run = td7.Run(write_varied_run(tmp_path / "run", MEANS, ("learning_rate", "discount")))
    file = run.path / "evaluations.csv"
    header, *rows = file.read_text().splitlines()
    file.write_text("\n".join([header, *(row for row in rows if row[0] in "02")]) + "\n")
    for function in (run.plot, run.summary):
        with pytest.raises(td7.InputError, match="has no evaluation of every seed yet"):
            function()
    assert "no evaluation yet" in run._repr_html_()


def test_the_tables_of_a_trained_run(run: td7.Run) -> None:
    own = run.evaluations[["member", "learning_rate", "discount", "seed"]].drop_duplicates()
    assert own.to_numpy().tolist() == [[i, *member] for i, member in enumerate(MEMBERS)]


def test_an_evaluation_is_the_runs_last(run: td7.Run) -> None:
    played = td7.evaluate(run, episodes=2)
    last = run.evaluations.query("step == 80").drop(columns="step").reset_index(drop=True)
    pd.testing.assert_frame_equal(played, last)


def test_policies_are_chosen_by_member_or_seed(run: td7.Run) -> None:
    played = td7.evaluate(run, episodes=2)
    one = td7.evaluate(run, member=NUMBER, episodes=2)
    pd.testing.assert_frame_equal(one, played.query(f"member == {NUMBER}").reset_index(drop=True))
    of_seed = td7.evaluate(run, seed=SEED, episodes=2)
    pd.testing.assert_frame_equal(of_seed, played.query(f"seed == {SEED}").reset_index(drop=True))
    kept = td7.evaluate(run.path / "policies" / "000000040", member=NUMBER, episodes=2)
    then = run.evaluations.query(f"member == {NUMBER} and step == 40")["return"]
    assert kept["return"].tolist() == then.tolist()
    for loaded in (td7.load(run, member=NUMBER), run.policy(member=NUMBER)):
        assert loaded.flat.tolist() == td7.load(run, SEED, member=NUMBER).flat.tolist()


def test_a_choice_that_names_nothing_is_one_line(run: td7.Run, tmp_path: Path) -> None:
    plain = write_run(tmp_path / "plain", {0: [1.0, 2.0], 3: [1.0, 2.0]})
    for function, options, message in (
        (td7.evaluate, {"member": 8}, "has no member 8; allowed: 0–7"),
        (td7.evaluate, {"seed": 1}, "has no seed 1; allowed: 0, 2"),
        (td7.evaluate, {"seed": 0, "member": 5}, "member 5 of .* has no seed 0; allowed: 2"),
        (td7.evaluate, {"member": "x"}, "member takes a whole number, given 'x'"),
        (td7.load, {}, "has several members: choose one of 0–7"),
        (td7.load, {"seed": 2}, "has several members with seed 2: choose one of 1, 3, 5, 7"),
    ):
        with pytest.raises(td7.InputError, match=message):
            function(run, **options)
    with pytest.raises(td7.InputError, match=r"has no member 0, because nothing varies"):
        td7.evaluate(plain, member=0)


# -- the commands --------------------------------------------------------------------------------


def test_training_prints_a_row_per_configuration(tmp_path: Path, prints: Prints) -> None:
    words = [
        "--vary",
        "discount=0.9,0.99",
        "--seeds",
        "0-1",
        "--steps",
        60,
        "--out",
        tmp_path / "r",
    ]
    settings = [f"{name}={value}" for name, value in SMALL.items()]
    every = ["--evaluate-every", 30, "--evaluation-episodes", 1, "--set", *settings]
    out = prints("train", "td7", "--env", "toys:Point-v0", *words, *every)
    lines = [line for line in out.splitlines() if line.startswith("│")]
    run = td7.Run(tmp_path / "r")
    table = run.summary()
    last = table[table.index == "mean"].sort_values("last", ascending=False, kind="stable")
    assert [line.split("│")[2].strip() for line in lines] == [f"{v:g}" for v in last["discount"]]
    assert {line.split("│")[1].strip() for line in lines} == {"0, 1", "2, 3"}
    assert "mean over 2 seeds" in out


def test_evaluate_shows_what_varies(run: td7.Run, prints: Prints) -> None:
    out = prints("evaluate", run.path, "--member", NUMBER, "--episodes", 1)
    (line,) = (line for line in out.splitlines() if line.startswith("│"))
    assert [cell.strip() for cell in line.split("│")[1:5]] == ["5", "2", "0.0003", "0.9"]
    data = json.loads(prints("evaluate", run.path, "--seed", SEED, "--episodes", 1, "--json"))
    assert [member["member"] for member in data["members"]] == [1, 3, 5, 7]
    assert data["members"][2] | {"learning_rate": RATE, "discount": DISCOUNT} == data["members"][2]
    assert list(data["episodes"][0])[-3:] == ["seed", "learning_rate", "discount"]


def test_an_exported_folder_is_a_run_in_which_nothing_varies(
    run: td7.Run, tmp_path: Path, prints: Prints
) -> None:
    out = tmp_path / "alone"
    words = ["export", run.path, "--member", NUMBER, "--format", "folder", "--out", out]
    assert prints(*words) == f"{out}\n"
    alone = td7.Run(out)
    assert (alone.config["seeds"], alone.config["numbers"], alone.config["varied"]) == (
        [SEED],
        [],
        {},
    )
    own = {"learning_rate": RATE, "discount": DISCOUNT}
    assert alone.config["hyperparameters"] == {**run.config["hyperparameters"], **own}
    assert (out / "policy" / "seed-2.safetensors").is_file()
    table = run.evaluations.query(f"member == {NUMBER}").reset_index(drop=True)
    expected = table[["seed", "step", "episode", "return", "length"]]
    pd.testing.assert_frame_equal(alone.evaluations, expected)
    played, theirs = td7.evaluate(out), td7.evaluate(run, member=NUMBER)
    pd.testing.assert_frame_equal(played, theirs[list(played)])
    kept = td7.export(
        run.path / "policies" / "000000040", tmp_path / "kept", member=NUMBER, format="folder"
    )
    assert set(td7.Run(kept).evaluations["step"]) == {0, 40}


def test_an_onnx_file_says_what_varies(run: td7.Run, tmp_path: Path) -> None:
    import onnx

    copy = shutil.copytree(run.path, tmp_path / "copy")
    file = td7.export(copy, member=NUMBER)
    assert file == copy / "policy" / "member-5.onnx"
    properties = {p.key: p.value for p in onnx.load(file).metadata_props}
    own = {"member": "5", "seed": "2", "learning_rate": "0.0003", "discount": "0.9"}
    assert properties | own == properties


@pytest.mark.parametrize("kind", ["replay", "expert", "medium"])
def test_a_dataset_of_one_member(run: td7.Run, tmp_path: Path, kind: str, prints: Prints) -> None:
    out = tmp_path / "data.hdf5"
    words = ["dataset", "record", "--run", run.path, "--kind", kind, "--rows", 30, "--out", out]
    assert prints(*words, status=2).endswith("has several members: choose one of 0–7")
    prints(*words, "--member", NUMBER)
    with h5py.File(out) as file:
        attributes = dict(file.attrs)
        ends = np.flatnonzero(file["terminals"][...] + file["timeouts"][...])
    own = {"member": NUMBER, "seed": SEED, "learning_rate": RATE, "discount": DISCOUNT}
    assert {name: attributes[f"td7.{name}"] for name in own} == own
    if kind == "medium":
        untrained = run.evaluations.query(f"member == {NUMBER} and step == 0")["return"].mean()
        assert f"(untrained {untrained:,.1f}, best " in attributes["td7.policies"]
    if kind == "replay":
        steps = run.episodes.query(f"member == {NUMBER} and step <= 30")["step"]
        assert ends.tolist()[: len(steps)] == [step - 1 for step in steps]


# -- listeners and loggers -----------------------------------------------------------------------


def test_a_listener_receives_the_tables(run: td7.Run, received: Received) -> None:
    for name in ("evaluations", "episodes", "metrics"):
        table = getattr(run, name)
        rows = pd.DataFrame([row for table_name, row in received if table_name == name])
        by = [*table.columns[:3]]
        pd.testing.assert_frame_equal(
            rows.sort_values(by, ignore_index=True), table.sort_values(by, ignore_index=True)
        )


def test_tensorboard_has_a_run_per_member_with_its_values(run: td7.Run) -> None:
    folder = run.path / "tensorboard"
    assert {path.name for path in folder.iterdir()} == {f"member-{i}" for i in range(8)}
    events = EventAccumulator(str(folder / f"member-{NUMBER}"))
    events.Reload()
    scalars = events.Tags()["scalars"]
    assert "eval/mean_reward" in scalars
    assert not {tag for tag in scalars if tag.endswith(("seed", "learning_rate", "discount"))}
    returns = run.evaluations.query(f"member == {NUMBER}").groupby("step")["return"].mean()
    logged = {event.step: event.value for event in events.Scalars("eval/mean_reward")}
    assert logged == pytest.approx(returns.to_dict())
    metadata = events.summary_metadata["_hparams_/session_start_info"]
    values = HParamsPluginData.FromString(metadata.plugin_data.content).session_start_info.hparams
    given = {name: value.number_value for name, value in values.items()}
    assert given == {"seed": SEED, "learning_rate": RATE, "discount": DISCOUNT}


def test_services_have_a_run_per_member(run: td7.Run) -> None:
    record = RunRecord.read(run.path)
    record.data["logging_id"] = "abc"
    logged = LoggedRun(record)
    assert logged.id(NUMBER) == "abc-5"
    assert logged.name(NUMBER) == "run, member 5, learning_rate=0.0003, discount=0.9, seed 2"
    config = logged.config(NUMBER)
    values = {"learning_rate": RATE, "discount": DISCOUNT}
    assert (config["seed"], config["member"], config["varied"]) == (SEED, NUMBER, values)
    assert config["hyperparameters"] | values == config["hyperparameters"]
    names = [logged.name(i) for i in record.members.ids]
    assert len(set(names)) == len({logged.id(i) for i in record.members.ids}) == 8


# -- warm starts ---------------------------------------------------------------------------------


def test_no_run_starts_from_one_that_varies(run: td7.Run, tmp_path: Path, prints: Prints) -> None:
    words = ["--env", "toys:Point-v0", "--start-from", run.path, "--out", tmp_path / "next"]
    line = prints("train", "td7", *words, status=2)
    assert line == (
        f"td7: {run.path} has several values of learning_rate, discount; a run starts from one in "
        "which nothing varies: train the values that you want alone, with --set"
    )
    assert not (tmp_path / "next").exists()


def test_a_run_that_varies_starts_from_one_that_does_not(tmp_path: Path) -> None:
    """Each member from its seed, as a run of its values alone does."""
    seeds = (0, 3)
    first = td7.train(**FEW, seeds=seeds, out=tmp_path / "first")
    more: dict[str, Any] = {**FEW, "seeds": seeds, "start_from": first}
    varied = td7.train(**more, vary={"discount": (0.9, 0.95)}, out=tmp_path / "varied")
    assert varied.config["start_from"]["seeds"] == [0, 3, 0, 3]
    alone = td7.train(**{**more, "set": {**SMALL, "discount": 0.95}}, out=tmp_path / "alone")
    own = varied.evaluations.query("discount == 0.95").reset_index(drop=True)
    np.testing.assert_allclose(own["return"], alone.evaluations["return"], rtol=1e-4)
    assert own["seed"].tolist() == alone.evaluations["seed"].tolist()


# -- damaged folders -----------------------------------------------------------------------------

N = len(MEMBERS)
DAMAGED: list[tuple[dict[str, Any], str]] = [
    ({"numbers": 5}, "numbers must be a list, given 5"),
    ({"numbers": None}, "numbers must be a list, given None"),
    ({"numbers": []}, "'varied' is given without 'numbers'"),
    ({"numbers": [0] * N}, "'numbers' must be at most 1,000 different ones"),
    ({"numbers": [*range(100_000)]}, "'numbers' must be at most 1,000 different ones"),
    ({"numbers": [-1, *range(1, N)]}, "numbers=-1 must be at least 0"),
    ({"numbers": [0, 1]}, "'numbers', 'seeds' and 'varied' must have one value per member"),
    ({"seeds": [0]}, "'numbers', 'seeds' and 'varied' must have one value per member"),
    ({"seeds": ["a"] * N}, "seeds takes a whole number, given 'a'"),
    ({"varied": [1]}, "varied must be an object, given [1]"),
    ({"varied": {"discount": 5}}, "discount must be a list, given 5"),
    ({"varied": {"discount": [1]}}, "must have one value per member"),
    ({"varied": {"discount": ["x"] * N}}, "discount takes a number, given 'x'"),
    ({"varied": {"discount": [float("nan")] * N}}, "discount takes a number, given nan"),
    ({"varied": {"nope": [1] * N}}, "'varied' has 'nope', which is no number of 'hyperparameters'"),
    ({"varied": {"seed": [1] * N}}, "'varied' has 'seed', which is no number of 'hyperparameters'"),
    ({"varied": {"checkpoints": [1] * N}}, "'varied' has 'checkpoints', which is no number"),
    ({"varied": {"x" * 10_000: [1] * N}}, "which is no number of 'hyperparameters'"),
]


@pytest.mark.parametrize(("change", "message"), DAMAGED, ids=[m for _, m in DAMAGED])
def test_a_damaged_config_is_one_line(
    change: dict[str, Any], message: str, run: td7.Run, tmp_path: Path, prints: Prints
) -> None:
    folder = tmp_path / "damaged"
    shutil.copytree(run.path, folder, ignore=shutil.ignore_patterns("snapshot", "tensorboard"))
    data = {**run.config, **change}
    (folder / "config.json").write_text(json.dumps(data))
    out = tmp_path / "out"
    for words in (
        ["evaluate", folder],
        ["export", folder, "--member", 0, "--format", "folder", "--out", out],
        ["report", folder, "--out", out],
        ["compare", folder],
        ["resume", folder],
    ):
        line = prints(*words, status=2)
        assert message in line
        assert len(line) < 1_500
    assert not out.exists()


def test_members_without_different_seeds_are_configurations_of_their_own() -> None:
    members = Members((0, 1, 0), {"discount": (0.9, 0.9, 0.9)}, (0, 1, 2))
    assert members.configurations() == [[0, 1], [2]]


def test_numbers_in_words() -> None:
    assert listed([0, 3]) == "0, 3"
    assert listed([0, 1, 2, 3, 7, 9, 10]) == "0–3, 7, 9, 10"


# -- the page ------------------------------------------------------------------------------------


def test_the_page_lists_what_can_vary() -> None:
    """docs/guides/vary.md: every such hyperparameter of every algorithm, and no other."""
    names = {name: fields_that_vary(one.config) for name, one in ALGORITHMS.items()}
    listed_fields: dict[str, set[str]] = {name: set() for name in names}
    text = (ROOT / "docs" / "guides" / "vary.md").read_text()
    for row in re.findall(r"^\| (`.*?) \| (.*) \|$", text.partition("## What can vary")[2], re.M):
        own = {"all": set(names), "all but TD7": set(names) - {"td7"}}.get(row[1])
        for name in own or {label.lower().replace("x-ql", "xql") for label in row[1].split(", ")}:
            listed_fields[name] |= set(re.findall(r"`(\w+)`", row[0]))
    assert listed_fields == names


def fields_that_vary(config: type) -> set[str]:
    return {f.name for f in dataclasses.fields(config) if f.metadata.get("per_member")}

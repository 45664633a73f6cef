"""Members of one run with different hyperparameters train like runs of their own."""

import dataclasses
import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import td7
from folders import SMALL, TABLES, all_contents, differences, words
from td7.algorithms import ALGORITHMS
from td7.algorithms.config import ONLINE_GROUPS, LearnerConfig
from td7.cli.main import main
from td7.errors import InputError
from td7.rollouts.registration import describe
from td7.runs.members import Members
from td7.runs.policies import load
from td7.runs.record import DatasetRecord
from td7.training.config import RunConfig
from td7.training.loops import single_process_loop
from td7.training.parts import RunSetup
from td7.training.progress import QuietProgress, Status
from td7.types import Task
from test_fields_matter import BASE, DATA, MATTERS

Values = Mapping[str, Any]

# Algorithms, with settings in which all their fields that may vary have an effect.
CASES: Sequence[tuple[str, Values]] = (
    ("td7", {}),
    ("td7", {"encoder_training": "end_to_end"}),
    ("td3", {"replay": "lap"}),
    ("td3", {"checkpoints": "none"}),
    ("td3+ofe", {"replay": "lap"}),
    ("sac", {}),
    ("sac", {"checkpoints": "none"}),
    ("tqc", {}),
    ("td3+bc", {"replay": "lap"}),
    ("cql", {}),
    ("iql", {}),
    ("xql", {}),
)
IDS = ["-".join([name, *map(str, settings.values())]) for name, settings in CASES]
each_case = pytest.mark.parametrize(("algorithm", "settings"), CASES, ids=IDS)
STEPS = 220  # more than 200 updates


def config_of(algorithm: str, settings: Values) -> LearnerConfig:
    chosen = ALGORITHMS[algorithm]
    online = {"checkpoints": "minimum"} if chosen.online else {}
    known = {f.name for f in dataclasses.fields(chosen.config)}
    values = {**BASE, **online, **settings}
    return chosen.config(**{name: v for name, v in values.items() if name in known})


def fields_that_vary(algorithm: str, settings: Values) -> list[str]:
    """Those with an effect in this case."""
    config = config_of(algorithm, settings)
    groups = () if ALGORITHMS[algorithm].online else ONLINE_GROUPS
    return [
        f.name
        for f in dataclasses.fields(config)
        if f.metadata["per_member"]
        and f.metadata["group"] not in groups
        and all(getattr(config, n) in v for n, v in (f.metadata["needs"] or {}).items())
    ]


def other_values(algorithm: str, settings: Values, share: float) -> dict[str, Any]:
    """For each of these fields, a value on the way from its own to that of `MATTERS`."""
    config, values = config_of(algorithm, settings), {}
    for name in fields_that_vary(algorithm, settings):
        begin, end = getattr(config, name), MATTERS[algorithm][name][0]
        value = begin + share * (end - begin)
        values[name] = round(value) if isinstance(begin, int) else value
    return values


class Bests(QuietProgress):
    """Records which criteria the checkpoints of each member have had."""

    def __init__(self) -> None:
        self.seen: defaultdict[int, set[float]] = defaultdict(set)

    def show(self, status: Callable[[], Status], *, final: bool = False) -> None:
        for m, member in enumerate(status().members):
            self.seen[m].add(member.best)


def train(
    algorithm: str,
    settings: Values,
    members: Members,
    *,
    steps: int = STEPS,
    padding: int = 0,
    precision: str = "float64",
    engine: str = "eager",
) -> list[dict[str, Any]]:
    """Train in one process; return what each member has in the end."""
    collects = ALGORITHMS[algorithm].online
    record = DatasetRecord("none", len(DATA.rows), "", self_collected=False)
    config = RunConfig(
        algorithm=algorithm,
        variant="",
        task=Task("Metronome-v0"),
        seeds=members.seeds,
        varied=members.varied,
        numbers=members.numbers,
        padding=padding,
        steps=steps,
        hyperparameters=config_of(algorithm, settings),
        evaluate_every=1000,
        evaluation_episodes=1,
        metrics_every=1000,
        device="cpu",
        replay_device="cpu",
        precision=precision,
        engine=engine,
        threads=1,
        dataset=None if collects else record,
    )
    with TemporaryDirectory() as folder:
        dataset = None if collects else DATA
        progress = Bests()
        setup = RunSetup(config, describe(config.task), Path(folder), progress, dataset)
        loop = single_process_loop(setup)
        loop.restore()
        loop.run()
    tensors = {**loop.learner.state(), "rows": loop.replay.rows, "leaves": loop.replay.leaves}
    return [
        {
            **{name: tensor[m] for name, tensor in tensors.items()},
            "tested": torch.from_numpy(loop._evaluated_policy(m).value().copy()),
            "checkpoint": torch.from_numpy(loop.checkpoints[m].copy()),
            "updates": loop.engine.updates[m],
            "best": loop.members[m].assessment.best,
            "is late": loop.members[m].assessment.late,
            "episodes": loop.members[m].episodes,
            "bests": sorted(progress.seen[m]),
        }
        for m in range(len(members))
    ]


def stacked(seeds: Sequence[int], values: Sequence[Values]) -> Members:
    names = values[0].keys()
    varied = {name: tuple(one[name] for one in values) for name in names}
    return Members(tuple(seeds), varied, tuple(range(len(seeds))))


def check_same(actual: Mapping[str, Any], expected: Mapping[str, Any], tolerance: float) -> None:
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        if name == "bests":  # those between two looks are not among them
            continue
        if not isinstance(value, Tensor):
            assert actual[name] == pytest.approx(value, rel=tolerance), name
        elif value.numel():
            scale = float(value.abs().where(value.isfinite(), 0).max())
            assert torch.allclose(actual[name], value, rtol=0, atol=tolerance * scale), name


@cache
def three_members(algorithm: str, *settings: tuple[str, Any]) -> list[dict[str, Any]]:
    """One with the values of the case and two in which all fields that may vary have others."""
    values = [other_values(algorithm, dict(settings), share) for share in (0.0, 0.6, 1.0)]
    return train(algorithm, dict(settings), stacked((0, 0, 3), values))


@each_case
def test_a_member_equals_a_run_of_its_own(algorithm: str, settings: Values) -> None:
    together = three_members(algorithm, *settings.items())
    assert fields_that_vary(algorithm, settings)
    for m, (seed, share) in enumerate(((0, 0.0), (0, 0.6), (3, 1.0))):
        own = {**settings, **other_values(algorithm, settings, share)}
        (alone,) = train(algorithm, own, Members((seed,)))
        check_same(together[m], alone, 1e-7)
        assert alone["updates"] >= 200


@each_case
def test_each_field_that_may_vary_sets_a_member_apart(algorithm: str, settings: Values) -> None:
    """One member has the values of the case, and each other one has another value of one field."""
    names = fields_that_vary(algorithm, settings)
    usual, others = (other_values(algorithm, settings, share) for share in (0.0, 1.0))
    values = [usual, *({**usual, name: others[name]} for name in names)]
    first, *changed = train(algorithm, settings, stacked([0] * len(values), values), steps=50)
    for name, member in zip(names, changed, strict=True):
        same = [
            torch.equal(member[n], v) if isinstance(v, Tensor) else member[n] == v
            for n, v in first.items()
        ]
        assert not all(same), name


def test_every_number_of_an_update_may_vary() -> None:
    """All hyperparameters that are not whole; of the others, those that give no shape or period."""
    whole = {
        *("random_steps", "early_assessment_episodes", "late_assessment_episodes"),
        *("early_updates", "cloning_updates", "decay_updates"),
    }
    for algorithm in ALGORITHMS.values():
        for f in dataclasses.fields(algorithm.config):
            assert f.metadata["per_member"] == (f.type is float or f.name in whole), f.name


@pytest.mark.parametrize("algorithm", ["td7", "sac"])
def test_members_in_single_precision_agree_to_rounding(algorithm: str) -> None:
    """One update amplifies rounding, so only the first ones are compared."""
    usual, values = (other_values(algorithm, {}, share) for share in (0.0, 1.0))
    together = train(algorithm, {}, stacked((0, 3), (usual, values)), steps=20, precision="float32")
    (alone,) = train(algorithm, values, Members((3,)), steps=20, precision="float32")
    assert alone["updates"] >= 5
    check_same(together[1], alone, 1e-3)


@pytest.mark.parametrize(("algorithm", "settings"), [("td7", {}), ("td3", {"checkpoints": "none"})])
def test_padding_changes_nothing(algorithm: str, settings: Values) -> None:
    values = [other_values(algorithm, settings, share) for share in (0.0, 1.0)]
    members = stacked((0, 3), values)
    plain, padded = (
        train(algorithm, settings, members, steps=50, padding=padding) for padding in (0, 2)
    )
    for with_padding, without in zip(padded, plain, strict=True):
        check_same(with_padding, without, 1e-7)


@pytest.mark.parametrize(("algorithm", "settings"), [CASES[1], CASES[6], *CASES[9::2]])
@pytest.mark.usefixtures("traced")
def test_the_compiler_takes_values_that_vary(
    algorithm: str, settings: Values, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Updates are compiled whole, and equal those that are not compiled."""
    monkeypatch.setattr(QuietProgress, "warn", lambda _, message: pytest.fail(message))
    values = [other_values(algorithm, settings, share) for share in (0.0, 1.0)]
    members = stacked((0, 3), values)
    compiled, eager = (
        train(algorithm, settings, members, steps=15, engine=engine)
        for engine in ("compiled", "eager")
    )
    for member, expected in zip(compiled, eager, strict=True):
        check_same(member, expected, 1e-7)


# -- the command ---------------------------------------------------------------------------------

OPTIONS = (
    *("--env", "toys:Point-v0", "--seeds", "2,5", "--evaluate-every", "40"),
    *("--evaluation-episodes", "2", "--metrics-every", "10", "--device", "cpu", "--quiet"),
)
VARY = ("--vary", "learning_rate=1e-3,3e-4", "exploration_noise=0.1,0.3")


def train_command(out: Path, *options: str, algorithm: str = "td7", steps: int = 80) -> int:
    settings = {
        name: v for name, v in SMALL.items() if algorithm != "td3" or "embedding" not in name
    }
    chosen = (algorithm, *OPTIONS, "--steps", str(steps), "--set", *words(settings))
    return main(["train", *chosen, "--out", str(out), *options])


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seeds with two rates and two noises: eight members."""
    path = tmp_path_factory.mktemp("vary") / "run"
    assert train_command(path, *VARY) == 0
    return path


def test_every_combination_is_trained_with_every_seed(run: Path) -> None:
    config = json.loads((run / "config.json").read_text())
    assert config["seeds"] == [2, 5] * 4
    assert config["numbers"] == list(range(8))
    assert config["varied"] == {
        "learning_rate": [1e-3] * 4 + [3e-4] * 4,
        "exploration_noise": [0.1, 0.1, 0.3, 0.3] * 2,
    }


def test_tables_have_the_member_first_and_what_varies_last(run: Path) -> None:
    for table in TABLES:
        header, *lines = (run / table).read_text().splitlines()
        columns = header.split(",")
        assert columns[0] == "member"
        assert columns[-3:] == ["seed", "learning_rate", "exploration_noise"]
        for line in lines:
            cells = line.split(",")
            m = int(cells[0])
            assert cells[-3:] == [
                str([2, 5][m % 2]),
                str([1e-3, 3e-4][m // 4]),
                str([0.1, 0.3][m // 2 % 2]),
            ]
        assert {line.split(",")[0] for line in lines} == set("01234567")


def test_a_member_is_that_of_a_run_with_its_values(run: Path, tmp_path: Path) -> None:
    """To rounding: products of eight members may round differently from those of one."""
    values = {"learning_rate": 3e-4, "exploration_noise": 0.3}
    alone = td7.train(
        env="toys:Point-v0",
        seeds=5,
        steps=80,
        evaluate_every=40,
        evaluation_episodes=2,
        device="cpu",
        quiet=True,
        set={**SMALL, **values},
        out=tmp_path / "alone",
    )
    member = td7.Run(run).evaluations.query("member == 7")
    expected = alone.evaluations["return"]
    np.testing.assert_allclose(member["return"], expected, rtol=1e-3)


def test_policies_are_known_by_number_and_explore_with_their_own_noise(run: Path) -> None:
    names = {file.name for file in (run / "policy").iterdir()}
    assert names == {"policy.json", *(f"member-{n}.safetensors" for n in range(8))}
    scales = [load(run, member=n).exploration.scale for n in range(8)]
    assert scales == [0.1, 0.1, 0.3, 0.3] * 2


@pytest.mark.parametrize(
    ("algorithm", "options"),
    [
        ("td7", ()),
        ("td7", ("--processes", "2")),
        ("td7", ("--workers", "1")),
        ("td3", ()),
    ],
)
def test_a_run_that_is_extended_equals_a_longer_one(
    algorithm: str, options: tuple[str, ...], tmp_path: Path
) -> None:
    long, short = tmp_path / "long", tmp_path / "short"
    vary = ("--vary", "learning_rate=1e-3,3e-4", "random_steps=20,35")
    settings = {name: v for name, v in SMALL.items() if name != "random_steps"}
    settings = {n: v for n, v in settings.items() if algorithm != "td3" or "embedding" not in n}
    for path, steps in ((long, 80), (short, 40)):
        chosen = (algorithm, *OPTIONS, *vary, *options, "--set", *words(settings))
        assert main(["train", *chosen, "--steps", str(steps), "--out", str(path)]) == 0
    assert main(["resume", str(short), "--steps", "80", "--quiet"]) == 0
    assert differences(all_contents(short), all_contents(long)) == []


@pytest.mark.parametrize(
    ("vary", "message"),
    [
        (("batch_size=16,32",), "batch_size cannot vary within a run: all members have the same"),
        (("learning_rat=1e-3,1e-4",), "unknown hyperparameter 'learning_rat'; did you mean"),
        (("learning_rate=1e-3",), "--vary: learning_rate takes two or more different values"),
        (("learning_rate=1e-3,0.001",), "--vary: learning_rate takes two or more different"),
        (("learning_rate=1e-3,x",), "learning_rate takes a number, given 'x'"),
        (("learning_rate=1e-3,-1",), "learning_rate=-1.0 must be above 0"),
        (("learning_rate",), "--vary takes name=value,value, given 'learning_rate'"),
        (("discount=0.9,0.99", "discount=0.5,0.6"), "--vary names discount twice"),
        (("hidden_dim=8,16",), "hidden_dim cannot vary within a run"),
        (("random_steps=10,20",), "random_steps is given twice: in --set and in --vary"),
        (
            ("encoder_loss_weight=1,2",),
            "encoder_loss_weight=2.0 has no effect with encoder_training",
        ),
        (("discount=" + ",".join(str(n / 1000) for n in range(501)),), "at most 1,000 members"),
    ],
)
def test_what_cannot_vary_is_refused_on_one_line(
    vary: tuple[str, ...], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train_command(tmp_path / "run", "--vary", *vary) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
    assert not (tmp_path / "run").exists()


def test_python_takes_values_as_sequences(tmp_path: Path) -> None:
    def run(**options: Any) -> td7.Run:
        return td7.train(
            env="toys:Point-v0",
            steps=35,
            evaluate_every=35,
            evaluation_episodes=1,
            device="cpu",
            quiet=True,
            out=tmp_path / "run",
            set={name: value for name, value in SMALL.items() if name != "random_steps"},
            **options,
        )

    with pytest.raises(InputError, match=r"vary: discount takes several values, given 0\.9"):
        run(vary={"discount": 0.9})
    vary = {"discount": np.array([0.9, 0.99]), "random_steps": [20, 30]}
    assert run(vary=vary).config["varied"] == {
        "discount": [0.9, 0.9, 0.99, 0.99],
        "random_steps": [20, 30, 20, 30],
    }

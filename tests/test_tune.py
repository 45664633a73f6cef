"""`td7 tune`: trials as members of one run, rungs, survivors, and searches that were stopped."""

import json
import math
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import td7
from folders import SMALL, words
from td7.algorithms import ALGORITHMS, LearnerConfig
from td7.algorithms.config import without_effect
from td7.cli.main import main
from td7.configs import build_config
from td7.errors import InputError
from td7.tuning import waves as waves_module
from td7.tuning.folder import wave_folder
from td7.tuning.run import make_plan, run_search, tune_options
from td7.tuning.rungs import rungs, survives
from td7.tuning.search import SearchRun
from td7.tuning.space import read_dimension, search_space
from td7.tuning.waves import WaveJob

OPTIONS: Mapping[str, Any] = {
    "env": "toys:Point-v0",
    "steps": 120,
    "seeds": [2, 5],
    "trials": 5,
    "wave": 2,
    "reduction": 2,
    "evaluate_every": 20,
    "evaluation_episodes": 1,
    "engine": "eager",
    "processes": 1,
    "device": "cpu",
    "quiet": True,
    "set": SMALL,
}
SPACE = {"learning_rate": "1e-4..1e-2:log", "discount": [0.9, 0.99]}


def tune(out: Path, **changes: Any) -> td7.Search:
    options = {**OPTIONS, "search": SPACE, "search_only": True, "out": out, **changes}
    return td7.tune("td7", **options)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> td7.Search:
    return tune(tmp_path_factory.mktemp("tune") / "search")


# -- rungs -----------------------------------------------------------------------------------------


def test_rungs_divide_what_comes_after_the_random_phase() -> None:
    """By hand: 75,000 steps after 25,000; a third is 25,000 and a ninth 8,333, rounded up."""
    assert rungs(100_000, 25_000, 5_000, 3, 64) == [35_000, 50_000, 100_000]
    assert rungs(100_000, 25_000, 5_000, 2, 64) == [35_000, 45_000, 65_000, 100_000]
    assert rungs(100_000, 0, 5_000, 3, 64) == [5_000, 15_000, 35_000, 100_000]
    assert rungs(100_000, 25_000, 50_000, 3, 64) == [100_000]  # evaluations are too rare
    assert rungs(100_000, 25_000, 5_000, 3, 2) == [50_000, 100_000]  # two trials: one survives
    assert all(step > 25_000 for step in rungs(100_000, 25_000, 1_000, 3, 1_000))


def test_the_best_part_of_all_trials_at_a_rung_survives() -> None:
    def survivors(scores: Sequence[float], reduction: int) -> list[int]:
        by_number = dict(enumerate(scores))
        return [n for n in by_number if survives(n, by_number, reduction)]

    assert survivors([5.0, 1.0, 4.0, 2.0, 3.0], 2) == [0, 2, 4]
    assert survivors([5.0, 1.0, 4.0, 2.0, 3.0], 3) == [0, 2]
    assert survivors([1.0], 3) == [0]
    assert survivors([math.nan], 3) == []
    assert survivors([math.nan, 1.0, math.nan], 3) == [1]
    assert survivors([2.0, 2.0, 2.0], 3) == [0]  # otherwise a search of equal trials ends none


# -- the space -------------------------------------------------------------------------------------


def config(name: str) -> LearnerConfig:
    return build_config(ALGORITHMS[name].config, {})


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_has_a_usual_space_that_contains_its_own_values(name: str) -> None:
    chosen = ALGORITHMS[name]
    space = search_space(
        chosen, config(name), {}, {}, with_defaults=True, is_offline=not chosen.online
    )
    assert {"learning_rate", "discount"} <= space.keys()
    for field, dimension in space.items():
        assert getattr(config(name), field) in dimension
        assert dimension.per_member, "a search in which some trials share no run is no default"
        assert not without_effect(chosen.config, {}, [field], offline=chosen.offline or {})


def test_cloning_is_searched_where_there_are_data() -> None:
    td7_agent = ALGORITHMS["td7"]
    online = search_space(td7_agent, config("td7"), {}, {}, with_defaults=True, is_offline=False)
    offline_config = build_config(td7_agent.config, td7_agent.offline or {})
    offline = search_space(td7_agent, offline_config, {}, {}, with_defaults=True, is_offline=True)
    assert "cloning_weight" in offline.keys() - online.keys()
    assert "exploration_noise" in online.keys() - offline.keys()


def test_search_replaces_adds_and_fixes() -> None:
    given = {"discount": "0.9,0.99", "batch_size": "64..256:log"}
    space = search_space(
        ALGORITHMS["td7"],
        config("td7"),
        given,
        {"target_noise": "0.1"},
        with_defaults=True,
        is_offline=False,
    )
    assert space["discount"].choices == (0.9, 0.99)
    assert (space["batch_size"].low, space["batch_size"].high) == (64, 256)
    assert not space["batch_size"].per_member
    assert "target_noise" not in space
    assert "learning_rate" in space


BAD: Sequence[tuple[Mapping[str, Any], str]] = (
    ({"learning_rat": "1e-4..1e-3"}, "unknown hyperparameter 'learning_rat'; did you mean"),
    ({"learning_rate": "1e-3..1e-4"}, "learning_rate=1e-3..1e-4 is empty"),
    ({"learning_rate": "1e-3..1e-3"}, "is empty: the first number must be the smaller"),
    ({"learning_rate": "-1..1e-3"}, "learning_rate=-1.0 must be above 0"),
    ({"target_noise": "0..1:log"}, "needs positive numbers for a logarithmic scale"),
    ({"discount": "0.9..1.5"}, "discount=1.5 must be at most 1"),
    ({"discount": "0.9"}, "two or more different values"),
    ({"discount": [0.9, 0.9]}, "two or more different values"),
    ({"discount": "0.9,high"}, "discount takes a number, given 'high'"),
    ({"learning_rate": "1e-4..1e-3:lin"}, "learning_rate takes a number, given"),
    ({"batch_size": "1.5..8"}, "batch_size takes a whole number, given '1.5'"),
    ({"value_clipping": "0..1"}, "value_clipping has no range"),
    ({"replay": "lap,new"}, "replay 'new'"),
    ({"critic_inputs": "zsa,zs"}, "critic_inputs holds several words"),
    ({"encoder_loss_weight": "0.1..10:log"}, "has no effect with encoder_training=decoupled"),
    ({"batch_size": "8,16"}, "batch_size is given twice: in "),
)


@pytest.mark.parametrize(("space", "message"), BAD)
def test_a_bad_search_is_one_line_and_writes_nothing(
    space: Mapping[str, Any], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InputError) as error:
        tune(tmp_path / "search", search=space)
    assert message in str(error.value)
    written = [
        f"{n}={v if isinstance(v, str) else ','.join(map(str, v))}" for n, v in space.items()
    ]
    command = [*("tune", "td7", "--env", "toys:Point-v0"), "--out", str(tmp_path / "search")]
    assert main([*command, "--set", *words(SMALL), "--search", *written]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
    assert not (tmp_path / "search").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": 30}, "nothing is trained: all 30 steps are random"),
        ({"steps": 10}, "must be at least evaluate_every"),
        ({"trials": 0}, "trials=0 must be at least 1"),
        ({"sampler": "grid"}, "sampler 'grid'"),
        ({"pruner": "hyperband"}, "pruner 'hyperband'"),
        ({"wave": "0"}, "wave=0 must be at least 1"),
        ({"wave": "many"}, "wave takes auto or a whole number"),
        ({"reduction": 1}, "reduction=1 must be at least 2"),
        ({"search": {}, "set": {**SMALL, "discount": 0.9}}, "nothing to search"),
        ({"env": "Nowhere-v0"}, "Nowhere"),
        ({"steps": 10**9, "set": {**SMALL, "replay_capacity": 10**9}}, "the replay of 4 seed(s)"),
    ],
)
def test_bad_options_are_one_line_and_write_nothing(
    changes: Mapping[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as error:
        tune(tmp_path / "search", **changes)
    assert message in str(error.value)
    assert not (tmp_path / "search").exists()


def test_whole_ranges_and_choices_are_what_a_config_holds() -> None:
    cls = ALGORITHMS["td7"].config
    dimension = read_dimension(cls, "batch_size", "64..1k")
    assert (dimension.low, dimension.high, dimension.is_whole) == (64, 1000, True)
    assert read_dimension(cls, "value_clipping", "true,false").choices == (True, False)
    assert read_dimension(cls, "learning_rate", " 1e-4 .. 1e-3 ").high == 1e-3


# -- a search --------------------------------------------------------------------------------------


def test_waves_and_rungs_are_as_planned(found: td7.Search) -> None:
    """Rungs by hand: 90 steps after 30; half of them are 45, a quarter 22.5, each rounded up."""
    record = found.record
    assert record.rungs == [80, 120]
    assert [(wave.rung, len(wave.trials)) for wave in record.waves][:2] == [(0, 2), (0, 2)]
    assert all(wave.is_judged for wave in record.waves)
    first = sorted(t for wave in record.waves if wave.rung == 0 for t in wave.trials)
    assert first == list(range(5))


def test_the_usual_values_are_the_first_trial(found: td7.Search) -> None:
    assert dict(found.all[0].values) == {"learning_rate": 3e-4, "discount": 0.99}


def test_scores_are_those_of_the_waves_tables(found: td7.Search) -> None:
    for number, wave in enumerate(found.record.waves):
        table = pd.read_csv(wave_folder(found.path, number) / "evaluations.csv")
        steps = found.record.rungs[wave.rung]
        last = table[table["step"] == steps].groupby("member")["return"].mean()
        for i, trial in enumerate(wave.trials):
            assert found.all[trial].scores[steps] == (last[2 * i], last[2 * i + 1])
            own = table[table["member"].isin((2 * i, 2 * i + 1))]
            assert set(own["learning_rate"]) == {found.all[trial].values["learning_rate"]}
            assert set(own["seed"]) == {2, 5}


def test_survivors_are_the_better_ones_and_keep_their_curves(found: td7.Search) -> None:
    at_first = {t.number: sum(t.scores[80]) for t in found.all}
    survived = {t.number for t in found.all if t.steps == 120}
    assert 0 < len(survived) < 5
    assert max(at_first, key=lambda n: at_first[n]) in survived
    last = max(n for n, wave in enumerate(found.record.waves) if wave.rung == 1)
    table = pd.read_csv(wave_folder(found.path, last) / "evaluations.csv")
    assert sorted(set(table["step"])) == [0, 20, 40, 60, 80, 100, 120]


def test_the_best_trial_is_a_command(found: td7.Search, tmp_path: Path) -> None:
    best = found.best
    assert best.steps == 120
    assert best.mean == max(t.mean for t in found.all if t.steps == 120)
    words_of = found.command.split()
    assert words_of[:3] == ["td7", "train", "td7"]
    assert main([*words_of[1:], "--out", str(tmp_path / "run"), "--quiet"]) == 0
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert {n: config["hyperparameters"][n] for n in SPACE} == dict(best.values)


def test_trials_are_a_table(found: td7.Search) -> None:
    table = found.trials
    assert list(table.columns) == [*SPACE, "steps", "mean", "interval", "state"]
    assert len(table) == 5
    assert set(table["state"]) == {"finished", "pruned"}
    assert pd.read_csv(found.path / "trials.csv").equals(table.reset_index())
    assert repr(found).startswith("<search in ")


def test_snapshots_stay_only_where_a_trial_could_continue(found: td7.Search) -> None:
    for number, wave in enumerate(found.record.waves):
        has_snapshot = (wave_folder(found.path, number) / "snapshot").exists()
        assert has_snapshot == (wave.rung == 1)


def test_optuna_opens_the_journal(found: td7.Search) -> None:
    optuna = pytest.importorskip("optuna")
    journal = optuna.storages.journal.JournalFileBackend(str(found.path / "optuna.log"))
    storage = optuna.storages.JournalStorage(journal)
    study = optuna.load_study(study_name=None, storage=storage)
    assert study.best_value == found.best.mean
    assert study.best_params == dict(found.best.values)


class InterruptedSearchError(Exception):
    """Stands for a kill between two steps of a search."""


@pytest.mark.parametrize(
    ("kind", "moment", "wave"),
    [
        (WaveJob, "train", 0),
        (WaveJob, "train", 2),
        (SearchRun, "_judge", 1),
        (SearchRun, "_tidy", 2),
    ],
)
def test_a_search_that_was_interrupted_ends_like_one_that_was_not(
    kind: type,
    moment: str,
    wave: int,
    found: td7.Search,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = 0
    real = getattr(kind, moment)

    def interrupted(self: Any, *arguments: Any) -> None:
        nonlocal calls
        real(self, *arguments)
        calls += 1
        if calls == wave + 1:
            raise InterruptedSearchError

    monkeypatch.setattr(kind, moment, interrupted)
    with pytest.raises(InterruptedSearchError):
        tune(tmp_path / "search")
    monkeypatch.undo()
    again = tune(tmp_path / "search")
    assert again.trials.equals(found.trials)
    assert again.record.waves == found.record.waves


def test_a_wave_that_never_saved_starts_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = waves_module.start  # type: ignore[attr-defined]  # imported there

    def start(options: Any, progress: Any, stack: Any) -> Path:
        if stack.origins:
            Path(options.out).mkdir()
            (Path(options.out) / "config.json").write_text("{}")
            raise InterruptedSearchError
        path: Path = real(options, progress, stack=stack)
        return path

    monkeypatch.setattr(waves_module, "start", start)
    with pytest.raises(InterruptedSearchError):
        tune(tmp_path / "search")
    monkeypatch.undo()
    again = tune(tmp_path / "search")
    assert all(trial.state in ("finished", "pruned") for trial in again.all)


def test_trials_that_diverge_end_alone(tmp_path: Path) -> None:
    """Both of the first wave, and one of the second."""
    rates = {"learning_rate": "1e29,1e30,3e-4"}
    search = tune(tmp_path / "search", search=rates, sampler="random", sampler_seed=1, trials=6)
    diverged = {t.number for t in search.all if t.values["learning_rate"] > 1}
    assert diverged
    assert diverged < {t.number for t in search.all}
    assert {t.number for t in search.all if math.isnan(t.mean)} == diverged
    assert {search.all[n].state for n in diverged} == {"pruned"}
    assert search.best.number not in diverged
    assert any(set(wave.trials) <= diverged for wave in search.record.waves)


def test_a_search_can_be_extended_but_not_changed(tmp_path: Path) -> None:
    tune(tmp_path / "search", trials=2)
    assert len(tune(tmp_path / "search", trials=3).trials) == 3
    for changes, message in (
        ({"trials": 2}, "a search of 3 trials, which can only grow, given 2"),
        ({"trials": 3, "seeds": [2]}, r"holds a search with seeds=\(2, 5\), given \(2,\)"),
        ({"trials": 3, "search": {"discount": [0.5, 0.9]}}, "holds a search with search="),
    ):
        with pytest.raises(InputError, match=message):
            tune(tmp_path / "search", **changes)


def test_shapes_train_in_waves_of_their_own(tmp_path: Path) -> None:
    space = {**SPACE, "batch_size": [8, 16]}
    settings = {name: v for name, v in SMALL.items() if name != "batch_size"}
    search = tune(tmp_path / "search", search=space, set=settings, trials=6, pruner="none")
    sizes = {}
    for number, wave in enumerate(search.record.waves):
        config = json.loads((wave_folder(search.path, number) / "config.json").read_text())
        batch = config["hyperparameters"]["batch_size"]
        assert {search.all[t].values["batch_size"] for t in wave.trials} == {batch}
        sizes[batch] = True
    assert set(sizes) == {8, 16}
    assert all(trial.steps == 120 for trial in search.all)


@pytest.mark.parametrize("sampler", ["random", "qmc", "gp"])
def test_samplers(sampler: str, tmp_path: Path) -> None:
    search = tune(tmp_path / "search", sampler=sampler, trials=3, steps=60, pruner="median")
    assert len({tuple(t.values.values()) for t in search.all}) == 3


def test_compiled_waves_are_padded_to_one_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waves with fewer trials have the same shapes, so that nothing compiles again."""
    sizes = []
    real = waves_module.start  # type: ignore[attr-defined]  # imported there

    def start(options: Any, progress: Any, stack: Any) -> Path:
        sizes.append(len(stack.members) + stack.padding)
        path: Path = real(options, progress, stack=stack)
        return path

    monkeypatch.setattr(waves_module, "start", start)
    tune(tmp_path / "search", trials=3, wave=3)
    assert len(sizes) >= 2
    assert set(sizes) == {6}


def test_the_plan_is_shown_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["tune", "td7", "--env", "toys:Point-v0", "--steps", "100_000", "--dry-run"]
    assert main([*command, "--trials", "64", "--out", str(tmp_path / "search")]) == 0
    printed = capsys.readouterr().out
    assert "64 trials of td7 on toys:Point-v0, 3 seeds each" in printed
    assert "rung 1: 35,000 steps, about 64 trials" in printed
    assert "rung 2: 50,000 steps, about 22 trials" in printed
    assert "rung 3: 100,000 steps, about 8 trials" in printed
    assert "learning_rate=3e-5..3e-3:log" in printed
    assert not (tmp_path / "search").exists()


def test_a_damaged_record_is_one_line(found: td7.Search, tmp_path: Path) -> None:
    folder = shutil.copytree(found.path, tmp_path / "search")
    (folder / "search.json").write_text('{"options": {}, "space": [], "rungs": [1], "waves": []}')
    with pytest.raises(InputError, match=r"search.json is damaged: space must be an object"):
        td7.Search(folder)
    with pytest.raises(InputError, match="holds no search"):
        td7.Search(tmp_path)


def test_a_search_has_one_writer(tmp_path: Path) -> None:
    options = {**OPTIONS, "search": SPACE, "search_only": True, "out": tmp_path / "search"}
    plan = make_plan(tune_options({"algorithm": "td7", **options, "trials": 2}))
    run_search(plan)
    from td7.files import FolderLock

    lock = FolderLock(tmp_path / "search")
    try:
        with pytest.raises(InputError, match="in use"):
            run_search(plan)
    finally:
        lock.close()

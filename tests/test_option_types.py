"""Editors and type checkers see every option; hyperparameters are keyword arguments as well."""

import inspect
from collections.abc import Callable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import gymnasium
import pytest

import td7
import toys
from td7.algorithms import ALGORITHMS
from td7.algorithms.td7 import TD7Config
from td7.option_types import Hyperparameters, StudyKeywords, TrainKeywords
from td7.options import StudyOptions, TrainOptions
from td7.studies.run import study_options
from td7.training.resolve import run_config, train_options
from write_option_types import FILE, text

POINT: Mapping[str, Any] = {"env": "toys:Point-v0", "steps": 60, "seeds": [0]}


def test_the_written_file_is_up_to_date() -> None:
    """If it is not, `make option-types` writes it."""
    assert FILE.read_text(encoding="utf-8") == text()


@pytest.mark.parametrize(
    ("function", "keywords", "options"),
    [(td7.train, TrainKeywords, TrainOptions), (td7.study, StudyKeywords, StudyOptions)],
)
def test_every_option_and_hyperparameter_is_a_typed_keyword(
    function: Callable[..., Any], keywords: type, options: type
) -> None:
    first, *others = options.__annotations__
    settings = {name for a in ALGORITHMS.values() for name in a.config.__dataclass_fields__}
    assert keywords.__annotations__.keys() == {*others, *settings}
    assert Hyperparameters.__annotations__.keys() == settings
    signature = inspect.signature(function)
    assert next(iter(signature.parameters)) == first
    assert list(signature.parameters)[-1] == "hyperparameters"


def test_the_package_says_that_it_has_types() -> None:
    """Type checkers ignore the annotations of installed packages without this file."""
    assert (files("td7") / "py.typed").is_file()


def typed_calls() -> None:
    """Never called: mypy checks it, and reports each `type: ignore` below that hides no error."""

    def make() -> gymnasium.Env[Any, Any]:
        return toys.Point()

    run: td7.Run = td7.train("td7", env=make, seeds=range(3), steps=10, out=Path("run"))
    td7.train(env="A-v0", seeds="0-9", workers="auto", batch_size=128, discount=0.9)
    td7.train("tqc", env="A-v0", set={"quantiles": 5}, wrapper=gymnasium.Wrapper, workers=2)
    td7.train("sac", env="A-v0", env_kwargs={"a": 1}, critics=2, listener=lambda table, rows: None)
    td7.study("design", rows=["TD7"], env="A-v0", seeds=5, gpus=0.5, batch_size=128)
    td7.resume(run, steps=20, set={"batch_size": 128}, workers="auto")
    td7.evaluate(run, env_kwargs={"a": 1}).mean()
    td7.train(env="A-v0", step=5)  # type: ignore[call-arg]  # no such option
    td7.train(env="A-v0", bach_size=5)  # type: ignore[call-arg]  # no such hyperparameter
    td7.train(env="A-v0", steps="many")  # type: ignore[arg-type]
    td7.train(env="A-v0", batch_size="many")  # type: ignore[arg-type]
    td7.train(env=5)  # type: ignore[arg-type]
    td7.study("design", row=["TD7"])  # type: ignore[call-arg]
    td7.study("design", discount="high")  # type: ignore[arg-type]
    td7.resume(run, step=20)  # type: ignore[call-arg]
    td7.evaluate(run, episodes="many")  # type: ignore[arg-type]


def test_hyperparameters_are_keywords_or_set() -> None:
    """With the same result; words and values are read alike."""
    expected = run_config(train_options({**POINT, "set": {"batch_size": 8, "discount": 0.9}}))
    for options in (
        {"batch_size": 8, "discount": 0.9},
        {"batch_size": "8", "set": ["discount=0.9"]},
        {"discount": 0.9, "set": {"batch_size": 8}},
    ):
        assert run_config(train_options({**POINT, **options})) == expected
    assert isinstance(expected.hyperparameters, TD7Config)
    assert expected.hyperparameters.batch_size == 8
    of_a_row = train_options({**POINT, "variant": "online/SAC", "actor_hidden_dim": 8})
    assert run_config(of_a_row).hyperparameters.actor_hidden_dim == 8  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"batch_size": 8, "set": {"batch_size": 8}},
            "batch_size is given twice: as batch_size=8, and in set",
        ),
        ({"discount": 0.9, "set": "discount=0.8"}, "discount is given twice: as discount=0.9, "),
        ({"bach_size": 8}, "unknown option 'bach_size'; did you mean 'batch_si"),
        ({"step": 8}, "unknown option 'step'; did you mean 'steps'? allowed: "),
        ({"lr": 1}, "unknown option 'lr'; did you mean 'learning_rate'? allo"),
        ({"quantiles": 5}, "unknown option 'quantiles'; allowed: algorithm, "),
        ({"algorithm": "tqc", "embedding_dm": 5}, "…'embedding_dm'; did you mean 'embedding_dim'"),
        ({"variant": "design/TD3", "zs_norm": "none"}, "…'zs_norm'; "),
        ({"batch_size": "many"}, "batch_size takes a whole number, given 'many'"),
        ({"batch_size": None}, "batch_size takes a whole number, given None"),
        ({"discount": 2}, "discount=2.0 must be at most 1"),
    ],
)
def test_wrong_hyperparameters_are_one_line(options: Mapping[str, Any], message: str) -> None:
    with pytest.raises(td7.InputError) as error:
        td7.train(**{**POINT, **options})
    assert str(error.value).startswith(message.replace("…", "unknown option "))


def test_a_study_takes_hyperparameters_of_its_algorithms(tmp_path: Path) -> None:
    given = {"name": "online", "rows": ["TD7", "TQC"], "quantiles": 5, "set": {"batch_size": 8}}
    assert study_options(given).set == {"batch_size": 8, "quantiles": 5}
    folder = str(tmp_path / "study")
    with pytest.raises(td7.InputError, match="batch_size is given twice: as batch_size=8, and in"):
        td7.study("online", out=folder, batch_size=8, set={"batch_size": 9})
    with pytest.raises(td7.InputError, match="option 'quantile'; did you mean 'quantiles'"):
        td7.study("online", out=folder, quantile=8)  # type: ignore[call-arg]
    with pytest.raises(td7.InputError, match="unknown option 'quantiles'; allow"):
        td7.study("ablation-main", out=folder, quantiles=8)  # it has no TQC
    assert not Path(folder).exists()

"""Words as people type them: lists, short numbers, any case, and names from other programs."""

import dataclasses
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

import td7
import toys
from commands import ENV, TINY, FailingCommand, all_files
from folders import SMALL, words
from td7.algorithms import ALGORITHMS
from td7.algorithms.config import OnlineConfig
from td7.aliases import ALIASES, plain
from td7.cli.main import COMMANDS, build_parser, main
from td7.cli.parser import Parser
from td7.configs import build_config
from td7.errors import InputError, Option, assigned, nearest, on_command_line
from td7.options import StudyOptions, TrainOptions, options_from

assert toys  # registers the tasks


def parsed(*words: str) -> Namespace:
    return build_parser(words)[0].parse_args(words)


def trained(*words: str) -> TrainOptions:
    """The options that `td7 train` gets from these words."""
    values = vars(parsed("train", *words))
    names = [f.name for f in dataclasses.fields(TrainOptions)]
    return options_from(TrainOptions, {name: values[name] for name in names})


SETTINGS = {"batch_size": "8", "hidden_dim": "16"}


@pytest.mark.parametrize(
    "words",
    [
        ("td7", "--set", "batch_size=8", "hidden_dim=16"),
        ("--set", "batch_size=8", "hidden_dim=16", "td7"),
        ("--set=batch_size=8", "hidden_dim=16", "td7"),
        ("--set", "batch_size=8", "td7", "--set", "hidden_dim=16"),
        ("--set", "batch_size=8", "--set=hidden_dim=16", "td7", "--steps", "5"),
        ("--env-kwargs", "a=1", "--set", "batch_size=8", "hidden_dim=16", "td7"),
    ],
)
def test_set_is_repeatable_and_never_takes_the_algorithm(words: tuple[str, ...]) -> None:
    options = trained(*words)
    assert (options.algorithm, options.set) == ("td7", SETTINGS)


@pytest.mark.parametrize(
    ("words", "seeds"),
    [
        (("--seeds", "0", "1", "2", "sac"), (0, 1, 2)),
        (("--seeds", "0,", "1,", "2", "sac"), (0, 1, 2)),
        (("--seeds", "0-2", "5", "sac"), (0, 1, 2, 5)),
        (("--seeds=0", "5", "sac"), (0, 5)),
        (("--seeds", "0 5", "sac"), (0, 5)),
        (("sac", "--seeds", "7"), (7,)),
        (("--seeds", "0 - 2", "sac"), (0, 1, 2)),
    ],
)
def test_seeds_are_a_list_that_never_takes_the_algorithm(
    words: tuple[str, ...], seeds: tuple[int, ...]
) -> None:
    options = trained(*words)
    assert (options.algorithm, options.seeds) == ("sac", seeds)


def test_lists_of_a_study_never_take_its_name() -> None:
    values = vars(parsed("study", "--rows", "TD7", "TD3", "design", "--env", "A-v0", "B-v1,C-v2"))
    options = options_from(StudyOptions, {name: values[name] for name in ("name", "rows", "env")})
    assert options.name == "design"
    assert options.rows == ("TD7", "TD3")
    assert options.env == ("A-v0", "B-v1", "C-v2")
    assert parsed("study", "--env", "A-v0", "online").name == "online"


@pytest.mark.parametrize(
    ("text", "number"),
    [("100k", 100_000), ("1M", 1_000_000), ("1.5m", 1_500_000), ("0.3K", 300), ("2e1k", 20_000)],
)
def test_whole_numbers_may_be_in_thousands_and_millions(text: str, number: int) -> None:
    """On the command line, in --set and in Python."""
    assert trained("--steps", text).steps == number
    assert options_from(TrainOptions, {"steps": text}).steps == number
    assert build_config(OnlineConfig, {"random_steps": text}).random_steps == number


@pytest.mark.parametrize("text", ["k", "1.0001k", "1kk", "1Q", "nank", "1e99999999k", "k1"])
def test_other_text_is_no_number(text: str, failing_command: FailingCommand) -> None:
    message = failing_command("train", *ENV, "--steps", text)
    assert message == f"--steps takes a whole number, given {text!r}"


def test_names_of_algorithms_and_studies_fold_case(working_folder: Path) -> None:
    """The run has the name in its usual case."""
    command = ["train", "Td7", *ENV, *TINY, "--out", "run", "--set", *words(SMALL)]
    assert main(command) == 0
    assert td7.Run("run").config["algorithm"] == "td7"
    row = td7.train(variant="Online/td3", env="toys:Point-v0", steps=5, quiet=True)
    assert (row.config["algorithm"], row.config["variant"]) == ("td3", "online/TD3")
    dry = ["study", "DESIGN", "--rows", "td3", "--env", "toys:Point-v0", "--dry-run"]
    assert main(dry) == 0
    assert main(["list", "studies", "Design"]) == 0
    assert main(["list", "algorithms", "TD3+BC"]) == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--steps", "5", "batch_size=8"], "unexpected argument 'batch_size=8'; did you mean '--s"),
        (["td7", "--seeds", "0", "b=2"], "argument 'b=2'; did you mean '--set b=2'?"),
        (["b=2"], "argument 'b=2'; did you mean '--set b=2'?"),
        (["--lr", "1"], "unknown option '--lr'; did you mean '--set learning_rate=…'?"),
        (["--gamma=1"], "unknown option '--gamma'; did you mean '--set discount=…'?"),
        (["--buffer-size", "1"], "did you mean '--set replay_capacity=…'?"),
        (["--learning_starts", "1"], "did you mean '--set random_steps=…'?"),
        (["--batch-sise", "1"], "did you mean '--set batch_size=…'?"),
        (["--total-timesteps", "1"], "did you mean '--steps'?"),
        (["--total_timesteps=1"], "did you mean '--steps'?"),
        (["--seed", "1"], "did you mean '--seeds'?"),
        (["--env-id", "1"], "did you mean '--env'?"),
        (["--track"], "did you mean '--wandb'?"),
        (["--n-envs", "4"], "did you mean '--workers'?"),
        (["--algo", "td7"], "--algo is no option: give ALGORITHM without one, td7 train ALGORITHM"),
        (["--algorithm", "td7"], "--algorithm is no option: give ALGORITHM without one"),
        (["td3", "--tau", "1"], "did you mean '--set target_rate=…'?"),
        (["td7", "--tau", "1"], "did you mean '--set target_every=…'?"),
        (["--set", "lr=1", *ENV], "unknown hyperparameter 'lr'; did you mean 'learning_rate'?"),
        (["td3_bc", *ENV], "unknown algorithm 'td3_bc'; did you mean 'td3+bc'?"),
        (["tdx", *ENV], ", or MODULE:NAME for your own"),
        (["--device", "cuda:1", *ENV], "CUDA_VISIBLE_DEVICES=1"),
        (["--workers", "lots", *ENV], "--workers takes auto or a whole number, given 'lots'"),
        (["--threads", "lots", *ENV], "--threads takes auto or a whole number, given 'lots'"),
        (["--processes", "lots", *ENV], "--processes takes auto or a whole number, given 'lots'"),
        (
            ["--keep-policies", "3", *ENV],
            "--keep-policies 3 must be a multiple of --evaluate-every 5",
        ),
        (["--import", "toy"], "--import: module 'toy' cannot be imported"),
    ],
)
def test_a_name_from_elsewhere_is_suggested_as_it_is_called_here(
    words: list[str], message: str, working_folder: Path, failing_command: FailingCommand
) -> None:
    assert message in failing_command("train", *words)
    assert all_files(working_folder) == {}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["enjoy"], "unknown command 'enjoy'; did you mean 'evaluate'?"),
        (["plot"], "unknown command 'plot'; did you mean 'report'?"),
        (["TRAIN"], "unknown command 'TRAIN'; did you mean 'train'?"),
        (["study", "design", "--tasks", "A-v0"], "did you mean '--env'?"),
        (["study", "--name", "design"], "--name is no option: give NAME without one"),
        (["study", "design", "--device", "cuda:1"], "CUDA_VISIBLE_DEVICES=1"),
        (["resume", "run", "--steps", "5", "b=2"], "did you mean '--set b=2'?"),
    ],
)
def test_so_are_names_of_commands_and_their_options(
    words: list[str], message: str, working_folder: Path, failing_command: FailingCommand
) -> None:
    assert message in failing_command(*words)
    assert all_files(working_folder) == {}


def test_a_folder_may_be_called_like_a_setting(
    working_folder: Path, failing_command: FailingCommand
) -> None:
    (working_folder / "seed=1").mkdir()
    assert failing_command("resume", "seed=1").startswith("seed=1 holds no run")


def _parsers() -> list[Parser]:
    return [build_parser([name])[1][name] for name in COMMANDS]


def test_every_alias_leads_to_a_name_that_exists() -> None:
    known = {*COMMANDS, *ALGORITHMS, "fetch", "info"}
    for parser in _parsers():
        known |= {*parser.option_names(), *(action.dest for action in parser._actions)}
    for algorithm in ALGORITHMS.values():
        known |= {f.name for f in dataclasses.fields(algorithm.config)}
    names = {plain(name) for name in known}
    for alias, ours in ALIASES.items():
        assert alias == plain(alias)
        assert names.issuperset(ours), alias
        assert nearest(alias, list(ours)) == ours[0]


def test_python_suggests_the_same_names(working_folder: Path) -> None:
    given: dict[str, Any]
    for given, message in (
        ({"total_timesteps": 5}, "unknown option 'total_timesteps'; did you mean 'steps'?"),
        ({"set": {"lr": 1}}, "unknown hyperparameter 'lr'; did you mean 'learning_rate'?"),
        ({"steps": 0}, "steps=0 must be at least 1"),
        ({"workers": "lots"}, "workers takes auto or a whole number, given 'lots'"),
        ({"keep_policies": 3}, "keep_policies=3 must be a multiple of evaluate_every=5000"),
    ):
        with pytest.raises(InputError) as error:
            td7.train(env="toys:Point-v0", **given)
        assert str(error.value).startswith(message)


def test_messages_spell_an_option_as_its_user_does() -> None:
    option = Option("env_kwargs")
    assert (f"{option}", assigned(option, 1)) == ("env_kwargs", "env_kwargs=1")
    with on_command_line():
        assert (f"{option}", assigned(option, 1)) == ("--env-kwargs", "--env-kwargs 1")
        assert assigned("batch_size", 1) == "batch_size=1"
    assert f"{option:>12}" == "  env_kwargs"


def test_help_has_each_default_once(capsys: pytest.CaptureFixture[str]) -> None:
    for parser in _parsers():
        for action in parser._actions:
            assert (action.help or "").count("default") <= 1, action.option_strings
            assert ") (" not in (action.help or "")


def test_train_imports_a_module_that_registers_its_task(working_folder: Path) -> None:
    (working_folder / "cart_of_train.py").write_text(
        "import gymnasium, toys\ngymnasium.register("
        "'TrainCart-v0', toys.Point, max_episode_steps=9)\n"
    )
    options = ["--steps", "5", "--quiet", "--out", "run"]
    assert main(["train", "--env", "TrainCart-v0", "--import", "cart_of_train", *options]) == 0
    assert td7.Run("run").config["task"]["id"] == "TrainCart-v0"

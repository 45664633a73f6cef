"""Bad command lines: one line, exit status 2, and nothing is written.

Words are taken from the real parsers: a command that would be short but valid, made invalid by at
least one word that is wrong whatever the others are.
"""

import argparse
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from faults import samples
from faults.campaign import Outcome
from faults.edits import Random, one_of
from faults.forks import in_child, in_lanes, in_loaded_process
from faults.verdicts import changed, check_ended, check_refused, tree
from folders import SMALL, words
from td7.cli.main import COMMANDS, build_parser, main

NAME = "commands"
FULL = 6_000
QUICK = 60

LONG = "x" * 300  # longer than a file's name may be
TRAIN = (
    *("--env", samples.TASK, "--steps", "2", "--seeds", "0", "--evaluation-episodes", "1"),
    *("--workers", "0", "--processes", "1", "--quiet", "--set", *words(SMALL)),
)
# A short valid command each; "run", "other" and "file" exist where it is carried out.
TUNE = ("--env", "toys:Point-v0", "--steps", "100_000")
VALID: Mapping[str, Sequence[str]] = {
    "train": ("train", "td7", *TRAIN, "--out", "new"),
    "resume": ("resume", "run", "--quiet"),
    "evaluate": ("evaluate", "run", "--episodes", "1"),
    "export": ("export", "run", "--seed", "2", "--out", "new.onnx"),
    "list": ("list", "algorithms"),
    "study": (*samples.STUDY_WORDS, "--dry-run"),
    "tune": ("tune", "td7", *TUNE, "--dry-run", "--out", "new"),
    "report": ("report", "run", "--no-figures", "--out", "new"),
    "compare": ("compare", "run", "other"),
    "dataset info": ("dataset", "info", "data.hdf5"),
    "dataset fetch": ("dataset", "fetch", "hopper-medium-v2", "--url", "http://127.0.0.1:9"),
    "dataset record": (
        *("dataset", "record", "--run", "run", "--kind", "expert", "--rows", "20"),
        *("--out", "new.hdf5"),
    ),
    "completion": ("completion", "bash"),
    "bench": ("bench", "--seconds", "0.01", "--rows", "100", "--members", "1", "--out", "new"),
}
# Wrong wherever they stand for a value: not a number, a name or an existing file.
JUNK = ("x", "²", "a b", "x\ny", "\x1b[31m", "\udcff", "%s%n", "{}", "../../..", "-1x", LONG)
NOT_A_NUMBER = (
    *("", "x", "nan", "inf", "-inf", "1e400", "-1", "-1e9", "0x10", "²", "1,,2", "9" * 6_000),
    *("1e", "None", "true", "[1]", "1\n2", "\udcff", "1 2", LONG),
)
NOT_A_COUNT = (*NOT_A_NUMBER, "1.5", "1e-3", "0.1")
NO_FILE = ("nowhere", "file/x", "nowhere/x", "x\ny", "\udcff", LONG, f"{LONG}/x")
NO_FOLDER = (*NO_FILE, "file", "empty", "run/config.json")
# What is wrong for an option or an argument, by its name; the others take JUNK.
WRONG: Mapping[str, Sequence[str]] = {
    "seeds": (*NOT_A_NUMBER, "1-", "5-2", "0,0", "0-5000", "1.5", ",", "0..3", f"0-{'9' * 6_000}"),
    **dict.fromkeys(("steps", "metrics_every", "evaluate_every"), NOT_A_COUNT),
    **dict.fromkeys(("evaluation_episodes", "keep_policies", "seeds_each", "step"), NOT_A_COUNT),
    **dict.fromkeys(("at_once", "seed", "episodes", "rows", "seconds", "cpus"), NOT_A_NUMBER),
    **dict.fromkeys(("member", "trials", "reduction", "sampler_seed", "wave"), NOT_A_COUNT),
    "vary": ("x", "", "=", "discount", "discount=0.9", "discount=0.9,0.9", "batch_size=8,16"),
    "search": ("x", "", "=", "discount", "discount=0.9", "discount=2..3", "learning_rate=1..0"),
    **dict.fromkeys(("workers", "processes", "threads"), (*NOT_A_COUNT, "1e18", "9" * 30)),
    "snapshot_every": NOT_A_NUMBER,
    "gpus": NOT_A_NUMBER,
    "set": ("x", "=", "=1", "batch_size", "batch_size=", "batch_size=-1", "no_such=1", "x\ny=1"),
    "env_kwargs": ("x", "", "x\ny", "\udcff", "no_such=1", "=1", "no_such=[1", f"{LONG}=1"),
    "env": (
        "x",
        "No-v0",
        ":",
        "toys:",
        "toys:No-v0",
        "no_module:Id-v0",
        "../x",
        "a b:c",
        LONG,
        "x\ny",
    ),
    "variant": ("x", "online", "online/", "online/x", "x/TD7", "a/b/c", "/", "x\ny", LONG),
    "algorithm": (
        "x",
        "td8",
        "no_module:x",
        "toys:x",
        ":",
        "x:",
        "a b",
        LONG,
        "x\ny",
        "toys:Point",
    ),
    "dataset": (*NO_FOLDER, "run"),
    "path": (*NO_FOLDER, "run", "empty"),
    "dir": NO_FOLDER,
    "dirs": NO_FOLDER,
    "run": NO_FOLDER,
    "video": ("x", "x.avi", "nowhere/x.mp4", "file/x.mp4", f"{LONG}.mp4", "x\ny"),
    "modules": ("no_module", "", "a b", ".", "..x", "toys.x", "1", "x\ny", "\udcff", LONG),
    "format": ("x", "", "ONNX", "torch", "x\ny", LONG),
    "markdown": ("nowhere/x.md", "run", "file/x.md", f"{LONG}.md"),
    "url": ("", "x", "http://", "ftp://x", "http://a b", "http://x\ny", "http://[::1", "\udcff"),
    "id": (*JUNK, "hopper", "hopper-medium-v3"),
    "kind": (*JUNK, "", "random", "Expert"),
}
# By command, where a name means something else.
WRONG_OF: Mapping[tuple[str, str], Sequence[str]] = {
    ("train", "out"): ("run", "file", "file/x", LONG, f"{LONG}/x"),
    ("study", "out"): ("file", "file/x", LONG),
    ("study", "rows"): ("x", "TD8", "td7", "", "x\ny", LONG),
    ("study", "tasks"): ("No-v0", "x,x", "no_module:Id-v0", "x\ny", LONG),
    ("study", "name"): (*JUNK, "", "ablations", "online/TD7"),
    ("study", "datasets"): (),
    ("study", "address"): JUNK,  # it has no effect without --backend ray
    ("export", "out"): ("x", "nowhere/x.onnx", "file/x.onnx", "run", f"{LONG}.onnx"),
    ("report", "out"): ("file", "file/x", LONG),
    ("dataset fetch", "out"): ("file", "file/x", LONG),
    ("dataset record", "out"): ("nowhere/x.hdf5", "file/x.hdf5", f"{LONG}.hdf5", "run"),
    ("bench", "out"): ("file", "file/x", LONG),
    ("list", "name"): ("x", "td8", "a b", "x\ny", LONG),
}


class Grammar(NamedTuple):
    """What a generated line needs to know of a command."""

    valid: Sequence[str]
    arguments: int  # where in `valid` the arguments begin, after the command's name
    options: Mapping[str, str]  # option that takes a value: its field
    flags: Sequence[str]
    positional: Sequence[str]  # fields
    others: Sequence[str]  # options of other commands


def run(trials: Sequence[int], seed: int, folder: Path) -> Outcome:
    return in_loaded_process(_run, trials, seed, folder)


def _run(trials: Sequence[int], seed: int, folder: Path) -> Outcome:
    stage, made = folder / "stage", samples.samples(folder)
    stage.mkdir()
    shutil.copyfile(made / "data.hdf5", stage / "data.hdf5")
    shutil.copytree(made / "checkpointed" / "run", stage / "run")
    (stage / "other").mkdir()
    for name in ("config.json", "evaluations.csv"):
        shutil.copyfile(stage / "run" / name, stage / "other" / name)
    (stage / "file").write_text("a file\n")
    (stage / "empty").mkdir()
    return in_lanes(trials, folder, partial(_trial, seed, stage, grammars()))


def grammars() -> dict[str, Grammar]:
    parsers: dict[str, argparse.ArgumentParser] = {}
    for name in COMMANDS:
        parser = build_parser([name])[1][name]
        nested = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
        parsers |= {f"{name} {n}": p for a in nested for n, p in a.choices.items()} or {
            name: parser
        }
    names = {option for parser in parsers.values() for option in parser._option_string_actions}
    return {name: _grammar(name, parser, names) for name, parser in parsers.items()}


def _grammar(name: str, parser: argparse.ArgumentParser, names: set[str]) -> Grammar:
    actions = [a for a in parser._actions if not isinstance(a, argparse._HelpAction)]
    return Grammar(
        valid=VALID[name],
        arguments=len(name.split()),
        options={a.option_strings[0]: a.dest for a in actions if a.option_strings and a.nargs != 0},
        flags=[a.option_strings[0] for a in actions if a.nargs == 0],
        positional=[a.dest for a in actions if not a.option_strings],
        others=sorted(names - parser._option_string_actions.keys()),
    )


def _trial(
    seed: int, stage: Path, all_grammars: Mapping[str, Grammar], number: int, folder: Path
) -> str:
    random = np.random.default_rng([seed, number])
    name = one_of(sorted(all_grammars), random)
    line = bad_line(name, all_grammars[name], random)
    sandbox = folder / "here"
    shutil.copytree(stage, sandbox)
    before = tree(sandbox)
    result = in_child(partial(main, line), sandbox)
    try:
        check_ended(result)
        assert result.status == 2, f"exit status {result.status}: {result.text[:200]!r}"
        message = check_refused(result)
        written = changed(before, tree(sandbox))
        assert not written, f"it changed {', '.join(written)[:200]}, and said {message[:100]}"
    except AssertionError as error:
        shown = [word if len(word) < 80 else f"{word[:20]}… ({len(word):,})" for word in line]
        raise AssertionError(f"td7 {shown}: {error}") from None
    return f"{name}: refused"


def bad_line(name: str, grammar: Grammar, random: Random) -> list[str]:
    """A valid command with up to three faults."""
    line = list(grammar.valid)
    if random.random() < 0.02:
        line[0] = one_of(("", "trian", "--trian", *JUNK), random)
    for _ in range(int(random.integers(1, 4))):
        fault = one_of(FAULTS, random)
        line = fault(line, name, grammar, random)
        if fault is _no_value:  # the next word would be its value
            break
    return line


def _wrong(name: str, field: str) -> Sequence[str]:
    return WRONG_OF.get((name, field), WRONG.get(field, JUNK))


def _bad_value(line: list[str], name: str, grammar: Grammar, random: Random) -> list[str]:
    options = [option for option, field in grammar.options.items() if _wrong(name, field)]
    if not options:
        return _bad_argument(line, name, grammar, random)
    option = one_of(options, random)
    value = one_of(_wrong(name, grammar.options[option]), random)
    return [*line, f"{option}={value}"] if random.random() < 0.5 else [*line, option, value]


def _bad_argument(line: list[str], name: str, grammar: Grammar, random: Random) -> list[str]:
    if not grammar.positional:
        return [*line, one_of(JUNK, random)]
    value = one_of(_wrong(name, grammar.positional[0]), random)
    return [*line[: grammar.arguments], value, *line[grammar.arguments + 1 :]]


def _unknown_option(line: list[str], name: str, grammar: Grammar, random: Random) -> list[str]:
    known = [*grammar.options, *grammar.flags, "--help"]
    option = one_of(known, random)
    word = one_of(
        (option + "s", option[:-1], f"{option}=", "--no-" + option[2:], *grammar.others),
        random,
    )
    junk = one_of(("---", "-x", "--\udcff", "--x\ny", "--=", f"--{LONG}"), random)
    return [*line, word if word not in known and random.random() < 0.8 else junk]


def _no_value(line: list[str], name: str, grammar: Grammar, random: Random) -> list[str]:
    if not grammar.options:
        return _surplus(line, name, grammar, random)
    return [*line, one_of(list(grammar.options), random)]


def _value_of_flag(line: list[str], name: str, grammar: Grammar, random: Random) -> list[str]:
    if not grammar.flags:
        return _unknown_option(line, name, grammar, random)
    return [*line, f"{one_of(grammar.flags, random)}={one_of(JUNK, random)}"]


def _surplus(line: list[str], name: str, grammar: Grammar, random: Random) -> list[str]:
    # Some commands take several folders, and ../../.. is one.
    values = _wrong(name, grammar.positional[-1]) if grammar.positional else JUNK
    return [*line, one_of(values, random)]


FAULTS: Sequence[Callable[[list[str], str, Grammar, Random], list[str]]] = (
    *(_bad_value, _bad_value, _bad_value, _bad_value, _bad_argument),
    *(_unknown_option, _no_value, _value_of_flag, _surplus),
)

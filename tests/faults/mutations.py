"""Spoilt run and study folders: a command refuses them, or its result is that of the good folder.

In some trials the checksums and the signature of the spoilt file are made right again. Then the
command may come to another result where nothing can tell, which `UNCOVERED` lists; but it still
ends in time, in one line if it fails. `snapshot_mutations` spoils the files of snapshots.
"""

import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import td7
from faults import samples
from faults.campaign import Outcome
from faults.edits import BYTE_EDITS, CSV_EDITS, JSON_EDITS, Edit, Random, one_of
from faults.forks import Result, in_child, in_lanes, in_loaded_process
from faults.seals import renew
from faults.tensor_edits import NPY_EDITS, SAFETENSORS_EDITS
from faults.verdicts import changed, check_ended, check_refused, tree
from folders import contents
from td7.cli.console import failed
from td7.cli.main import main

NAME = "mutations"
FULL = 10_000
QUICK = 25


def _td7(*words: str) -> int:
    return main(words)


def predict(path: str) -> int:
    """Load the policy of each seed and print its actions."""
    try:
        policies = [td7.load(path, seed) for seed in samples.SEEDS]
        states = np.random.default_rng(0).normal(size=(3, *policies[0].spec.state_shape))
        actions = [policy.predict(states)[0].tolist() for policy in policies]
    except td7.InputError as error:
        return failed(error, 2)
    print(actions)
    return 0


KEPT = f"run/policies/{samples.STOPS[0]}"
COMMANDS: Mapping[str, Callable[[], int]] = {
    "resume": partial(_td7, "resume", "run", "--steps", str(samples.LAST), "--quiet"),
    "evaluate": partial(_td7, "evaluate", "run", "--episodes", "1"),
    "evaluate kept": partial(_td7, "evaluate", KEPT, "--episodes", "1"),
    "load": partial(predict, "run"),
    "load kept": partial(predict, KEPT),
    "export": partial(_td7, "export", "run", "--seed", str(samples.SEEDS[0]), "--out", "p.onnx"),
    "report": partial(_td7, "report", "run", "--no-figures"),
    "report on the study": partial(_td7, "report", "study", "--no-figures"),
    "study": partial(_td7, *samples.STUDY_WORDS),
    "study --dry-run": partial(_td7, *samples.STUDY_WORDS, "--dry-run"),
}

READERS = ("evaluate", "load", "export", "report")  # of a run folder
Targets = Sequence[tuple[str, float, Sequence[str]]]
# Which files of a sample to spoil, how often, and the commands that may read them.
TARGETS: Targets = (
    (r"run/config\.json", 3, ("resume", "resume", *READERS)),
    (r"run/finished\.json", 1, ("resume", "report")),
    (r"run/(evaluations|episodes|metrics)\.csv", 4, ("resume", "evaluate", "report", "report")),
    (r"run/timings\.csv", 1, ("resume", "report")),
    (r"run/policy/policy\.json", 3, ("resume", "evaluate", "load", "export")),
    (r"run/policy/.*safetensors", 2, ("evaluate", "load", "export")),
    (r"run/policies/.*", 2, ("evaluate kept", "load kept")),
    (r"study/study\.json", 2, ("study", "study --dry-run", "report on the study")),
    (r"study/failed\.json", 1, ("study", "study --dry-run", "report on the study")),
    (r"study/[^/]*/.*/config\.json", 1, ("study --dry-run", "report on the study")),
    (r"study/[^/]*/.*/finished\.json", 1, ("study --dry-run", "report on the study")),
    (r"study/[^/]*/.*\.csv", 1, ("study --dry-run", "report on the study")),
)
# What may differ without a word once the checksums are right: files, commands, and the reason.
UNCOVERED: Sequence[tuple[str, str, str]] = (
    (
        r"run/polic(y|ies/\d+)/.*",
        "evaluate( kept)?|load( kept)?|export",
        "other weights or another description are another policy",
    ),
    (
        r"run/(evaluations|episodes|metrics|timings)\.csv",
        "evaluate|report|resume",
        "nothing but the table, which has its checksum, knows its numbers",
    ),
    (
        r"run/(config|finished)\.json",
        "report|evaluate",
        "settings that only this file states, with its checksum, may be others",
    ),
    (
        r"run/snapshot/.*",
        "resume",
        "numbers that fit the run, and have their checksums, may be the run's",
    ),
    (
        r"study/.*",
        "report on the study|study( --dry-run)?",
        "what only these files of a study state, with their checksums, may be otherwise",
    ),
)
# What may differ without a word where a file was deleted, likewise.
WITHOUT: Sequence[tuple[str, str, str]] = (
    (
        r"run/metrics\.csv",
        "report",
        "without metrics.csv, as in published folders, it has no value estimates",
    ),
    (r"study/.*/(config|finished)\.json", "study --dry-run", "the plan says that it is not done"),
)
MAY_CHANGE = {  # paths that a command that succeeds may make, change or delete
    "resume": r"run/(?!policies/0000000[0-4]).*",  # it may begin at the first of STOPS
    "export": r"p\.onnx",
    "report": r"report(/.*)?",
    "report on the study": r"report(/.*)?",
    "study": r"study/(study\.json|failed\.json|logs)",
}
BY_SUFFIX: Mapping[str, Mapping[str, Edit]] = {
    ".json": JSON_EDITS,
    ".csv": CSV_EDITS,
    ".safetensors": SAFETENSORS_EDITS,
    ".npy": NPY_EDITS,
}
RENEWED = 0.4  # of the trials whose file has a checksum or a signature
REFUSED = r"(run|study/.*)/\.lock"  # what a command that refuses may


class Target(NamedTuple):
    sample: str
    file: str  # within the sample
    commands: Sequence[str]
    weight: float


class Campaign(NamedTuple):
    """What every trial needs."""

    seed: int
    samples: Path
    targets: Sequence[Target]
    expected: dict[tuple[str, str], Any]  # by sample and command, once it was needed


def run(trials: Sequence[int], seed: int, folder: Path) -> Outcome:
    return mutate(TARGETS, trials, seed, folder)


def mutate(targets: Targets, trials: Sequence[int], seed: int, folder: Path) -> Outcome:
    return in_loaded_process(partial(_run, targets), trials, seed, folder)


def _run(patterns: Targets, trials: Sequence[int], seed: int, folder: Path) -> Outcome:
    made = samples.samples(folder)
    targets = _targets(patterns, made)
    return in_lanes(trials, folder, partial(_trial, Campaign(seed, made, targets, {})))


def _targets(patterns: Targets, made: Path) -> list[Target]:
    """Every file that a trial may spoil; the files of one pattern share its weight."""
    found = []
    for sample in sorted(path for path in made.iterdir() if path.is_dir()):
        names = sorted(p.relative_to(sample).as_posix() for p in sample.rglob("*") if p.is_file())
        for pattern, weight, commands in patterns:
            files = [name for name in names if re.fullmatch(pattern, name)]
            found += [Target(sample.name, f, commands, weight / len(files)) for f in files]
    return found


def _expected(campaign: Campaign, sample: str, command: str, folder: Path) -> Any:
    """The result of the good folder."""
    if (sample, command) not in campaign.expected:
        shutil.copytree(campaign.samples / sample, folder)
        result = in_child(COMMANDS[command], folder)
        assert result.status == 0, f"{command} of the good folder {sample}: {result.text}"
        campaign.expected[sample, command] = _observed(command, result, folder)
    return campaign.expected[sample, command]


def _observed(command: str, result: Result, folder: Path) -> Any:
    """What a command that succeeded resulted in."""
    if command == "resume":
        return contents(folder / "run")
    if command == "export":
        return (folder / "p.onnx").read_bytes()
    if command.startswith("report"):
        return {**tree(folder / "report"), "summary": result.out}
    return result.out


def _trial(campaign: Campaign, number: int, folder: Path) -> str:
    random = np.random.default_rng([campaign.seed, number])
    weights = np.array([target.weight for target in campaign.targets])
    target = campaign.targets[int(random.choice(len(weights), p=weights / weights.sum()))]
    command = str(random.choice(list(target.commands)))
    sandbox = folder / "here"
    shutil.copytree(campaign.samples / target.sample, sandbox)
    edit = spoil(sandbox / target.file, sandbox, random)
    if not edit:
        return ""
    is_renewed = bool(random.random() < RENEWED) and renew(sandbox / target.file)
    more = " and the checksums renewed" if is_renewed else ""
    what = f"{command}, {target.sample}/{target.file} {edit}{more}"
    before = tree(sandbox)
    result = in_child(COMMANDS[command], sandbox)
    try:
        uncovered = UNCOVERED if is_renewed else WITHOUT if edit == "deleted" else ()
        ended = _judge(campaign, target, command, result, sandbox, uncovered)
        # Status 1: a fault that the command met after it had begun, such as a loss that is not
        # finite or a folder in the place of a file that it writes.
        may_write = result.status < 2
        _check_files(command, result, changed(before, tree(sandbox)), may_write=may_write)
    except AssertionError as error:
        raise AssertionError(f"{what}: {error}") from None
    return f"{command}: {ended}"


def _judge(
    campaign: Campaign,
    target: Target,
    command: str,
    result: Result,
    sandbox: Path,
    uncovered: Sequence[tuple[str, str, str]],
) -> str:
    """Return how the command took the spoilt folder, or raise an AssertionError."""
    check_ended(result)
    if result.status != 0:
        check_refused(result, warnings=command == "resume")
        return "refused"
    expected = _expected(campaign, target.sample, command, sandbox.with_name("good"))
    if _observed(command, result, sandbox) == expected:
        return "as from the good folder" + (", with a warning" if result.err else "")
    shown = f"; it printed {result.err[:300]!r}" if result.err else ""
    if shown and command != "resume":
        return "differs, with a note"
    for files, commands, reason in uncovered:
        if re.fullmatch(commands, command) and re.fullmatch(files, target.file):
            return f"differs: {reason}"
    raise AssertionError(
        f"silently wrong{shown}: {_difference(command, result, sandbox, expected)}"
    )


def _difference(command: str, result: Result, sandbox: Path, expected: Any) -> str:
    observed = _observed(command, result, sandbox)
    if isinstance(expected, dict):
        return ", ".join(n for n in {**expected, **observed} if expected.get(n) != observed.get(n))
    return f"{observed[-200:]!r}"


def _check_files(command: str, result: Result, paths: Sequence[str], *, may_write: bool) -> None:
    """Raise if the command wrote where it should not."""
    pattern = f"{REFUSED}|{MAY_CHANGE.get(command, '')}" if may_write else REFUSED
    wrong = [path for path in paths if not re.fullmatch(pattern, path)]
    assert not wrong, f"exit status {result.status}, but it changed {', '.join(wrong)[:300]}"


# -- edits ---------------------------------------------------------------------------------------


def spoil(file: Path, root: Path, random: Random) -> str:
    """Change a file below `root` in one of the ways that suit it; return which."""
    edits: dict[str, Callable[[], None]] = {
        "deleted": file.unlink,
        "replaced by a folder": lambda: _replace_by_folder(file),
        "swapped": lambda: _swap(file, root, random),
    }
    by_suffix = BY_SUFFIX.get(file.suffix, {})
    # Half of the changes suit the format, as random bytes seldom come past its parser.
    group = by_suffix if by_suffix and random.random() < 0.5 else BYTE_EDITS
    if random.random() < 0.1:
        name = one_of(sorted(edits), random)
        edits[name]()
        return name
    name = one_of(sorted(group), random)
    before = file.read_bytes()
    after = before
    for _ in range(20):  # zeros over zeros change nothing
        after = group[name](before, random)
        if after != before:
            break
    file.write_bytes(after)
    return name if after != before else ""


def _replace_by_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def _swap(file: Path, root: Path, random: Random) -> None:
    others = sorted(p for p in root.rglob("*") if p.is_file() and p != file and p.stat().st_size)
    other = one_of(others, random)
    aside = file.with_name("aside")
    file.replace(aside)
    shutil.copyfile(other, file)
    aside.replace(other)

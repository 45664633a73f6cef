"""Run and study folders from a stranger: nothing outside them is read, changed or executed.

Every attack meets every command that reads such a folder. The folder is whole otherwise, and has
the signature of another user. Files outside hold what would make an attack succeed.
"""

import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from faults import samples
from faults.campaign import Outcome
from faults.canaries import EXECUTED, Canaries, times_of_reading_are_kept
from faults.forks import in_child, in_lanes, in_loaded_process
from faults.mutations import predict
from faults.verdicts import check_ended, check_refused
from folders import change_policy, newest
from interrupted_runs import change_both, edit
from td7.cli.main import main
from td7.files import FileDigest, read_sealed, write_json, write_sealed

NAME = "hostile"
QUICK = 25

Attack = Callable[[Path, Path], None]  # spoils a run or study folder; files outside
RUN_COMMANDS: Mapping[str, Callable[[], int]] = {
    "resume": partial(main, ["resume", "run", "--steps", str(samples.LAST), "--quiet"]),
    "evaluate": partial(main, ["evaluate", "run", "--episodes", "1"]),
    "load": partial(predict, "run"),
    "export": partial(main, ["export", "run", "--seed", "2"]),
    "report": partial(main, ["report", "run", "--no-figures"]),
    "dataset record": partial(
        main, ["dataset", "record", "--run", "run", "--kind", "replay", "--rows", "20"]
    ),
}
STUDY_COMMANDS: Mapping[str, Callable[[], int]] = {
    "study": partial(main, [*samples.STUDY_WORDS]),
    "study --dry-run": partial(main, [*samples.STUDY_WORDS, "--dry-run"]),
    "report": partial(main, ["report", "study", "--no-figures"]),
}
# What a resumed run writes, by the folder; each also has a temporary name.
WRITTEN = (
    *("config.json", "config.mac", "evaluations.csv", "episodes.csv", "metrics.csv"),
    *("timings.csv", "finished.json", "error.txt", "learning_curve.png", ".lock"),
    *("policy/policy.json", "policy/seed-2.safetensors", "policies/000000080/policy.json"),
    *("snapshot/000003/manifest.json", "snapshot/000003/state.safetensors"),
    *(
        "snapshot/replay/seed-2/000000000000-000000000005.npy",
        "snapshot/replay/parity/000001-0.xor",
    ),
    *(
        "snapshot/replay/seed-2/000000000060-000000000062.npy",
        "snapshot/replay/parity/000003-0.xor",
    ),
)
FOLDERS = (
    *("policy", "policies", "policies/000000080", "snapshot", "snapshot/000002"),
    *("snapshot/000003", "snapshot/.000003.tmp", "snapshot/damaged-000002"),
    *("snapshot/replay", "snapshot/replay/seed-2", "tensorboard"),
    "snapshot/replay/parity",
)


# -- links, FIFOs --------------------------------------------------------------------------------


def _link_to_copy(name: str) -> Attack:
    """The file or folder lies outside, and a link is in its place."""

    def attack(run: Path, outside: Path) -> None:
        copy, path = outside / "copy" / Path(name).name, run / name
        copy.parent.mkdir()
        if path.exists():
            path.rename(copy)
        elif Path(name).suffix in ("", ".tmp"):
            copy.mkdir()
            (copy / "mine").write_text("mine\n")
        else:
            copy.write_text("mine\n")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(copy)

    return attack


def _link_to_nothing(name: str) -> Attack:
    """A link through which a new file would be written."""

    def attack(run: Path, outside: Path) -> None:
        path = run / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.symlink_to(outside / "new")

    return attack


def _hard_link(name: str) -> Attack:
    def attack(run: Path, outside: Path) -> None:
        path = run / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            path.write_text("mine\n")
        (outside / path.name).hardlink_to(path)

    return attack


def _fifo(name: str) -> Attack:
    def attack(run: Path, outside: Path) -> None:
        del outside
        path = run / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        os.mkfifo(path)

    return attack


def _temporary(name: str) -> str:
    return str(Path(name).with_name(f".{Path(name).name}.tmp"))


def _link_attacks(written: Sequence[str], folders: Sequence[str]) -> dict[str, Attack]:
    temporaries = [_temporary(name) for name in written]
    return {
        **{f"{name} is a link": _link_to_copy(name) for name in (*written, *folders)},
        **{f"{name} is a link": _link_to_copy(name) for name in temporaries},
        **{f"{name} is a link to nothing": _link_to_nothing(name) for name in written},
        **{f"{name} is a link to nothing": _link_to_nothing(name) for name in temporaries},
        **{f"{name} is a hard link": _hard_link(name) for name in (*written, *temporaries)},
        **{f"{name} is a FIFO": _fifo(name) for name in (*written, *temporaries)},
    }


# -- names in files ------------------------------------------------------------------------------


def _edit_json(name: str, change: Callable[[Any], None]) -> Attack:
    def attack(run: Path, outside: Path) -> None:
        del outside
        data = json.loads((run / name).read_text())
        change(data)
        (run / name).write_text(json.dumps(data))

    return attack


def _shard(name: Callable[[Path], str]) -> Attack:
    """Name a shard outside in the newest snapshot, in files whose checksums are right."""

    def attack(run: Path, outside: Path) -> None:
        snapshot = newest(run)
        members = json.loads((snapshot / "members.json").read_text())
        manifest = json.loads((snapshot / "manifest.json").read_text())
        shard = run / "snapshot" / members["shards"]["2"][0]
        (outside / "rows.npy").write_bytes(shard.read_bytes())
        digest = manifest["files"].pop(members["shards"]["2"][0])
        elsewhere = members["shards"]["2"][0] = name(outside / "rows.npy")
        manifest["files"][elsewhere] = digest
        written = write_json(snapshot / "members.json", members)
        manifest["files"][f"{snapshot.name}/members.json"] = written._asdict()
        (snapshot / "manifest.json").write_text(json.dumps(manifest))

    return attack


def _config(change: Callable[[dict[str, Any]], None]) -> Attack:
    """Change the config in the run and in its snapshot."""

    def attack(run: Path, outside: Path) -> None:
        _write_module(run.parent, outside)
        change_both(run, change)

    return attack


def _policy_of_module(run: Path, outside: Path) -> None:
    _write_module(run.parent, outside)
    for file in run.glob("polic*/**/policy.json"):
        change_policy(file.parent, lambda data: data["task"]["task"].update(id="canary:Point-v0"))


def _write_module(folder: Path, outside: Path) -> None:
    """A module in the working folder, which is searched for modules."""
    trace = f"open({str(outside / EXECUTED)!r}, 'w').close()\n"
    (folder / "canary.py").write_text(f"{trace}import toys\n")


def _task_argument(run: Path, outside: Path) -> None:
    """An argument with which the task would read a file."""
    (outside / "arguments").write_text("mine\n")
    path = str(outside / "arguments")
    change_both(
        run,
        lambda config: config["task"].update(
            id="faults.odd_tasks:Reader-v0", kwargs={"path": path}
        ),
    )


def _dataset_elsewhere(run: Path, outside: Path) -> None:
    samples.dataset(outside / "data.hdf5")
    record = {
        "source": str(outside / "data.hdf5"),
        "rows": 1,
        "sha256": "0",
        "self_collected": True,
    }
    change_both(run, lambda config: config.update(dataset=record))


def _checksum_of(path: Callable[[Path], str]) -> Attack:
    """Have finished.json, whose own checksum is right, state that of a file outside."""

    def attack(run: Path, outside: Path) -> None:
        data = read_sealed(run / "finished.json")
        data["files"][path(outside / "mine")] = FileDigest.of(run / "config.json")._asdict()
        write_sealed(run / "finished.json", data)

    return attack


def _module_in_folder(run: Path, outside: Path) -> None:
    _write_module(run, outside)


def _study_of_module(study: Path, outside: Path) -> None:
    _write_module(study.parent, outside)
    _edit_json("study.json", lambda d: d.update(tasks=["canary:Point-v0"]))(study, outside)
    for file in study.glob("*/*/config.json"):
        edit(file.parent, lambda config: config["task"].update(id="canary:Point-v0"))


NAMES: Mapping[str, Attack] = {
    "a shard ../ outside": _shard(lambda file: f"../../../outside/{file.name}"),
    "an absolute shard": _shard(str),
    "a seed ../ outside": lambda run, _: change_policy(
        run / "policy", lambda d: d.update(seeds=["../../x", 5])
    ),
    "a checksum of a file ../ outside": _checksum_of(lambda file: f"../../outside/{file.name}"),
    "a checksum of an absolute file": _checksum_of(str),
    "a process's folder is a link": _link_to_copy("snapshot/process-0"),
    "a task of a module": _config(lambda c: c["task"].update(id="canary:Point-v0")),
    "an algorithm of a module": _config(lambda c: c.update(algorithm="canary:td7")),
    "a variant with dots": _config(lambda c: c.update(variant="../../x/y")),
    "a policy's task of a module": _policy_of_module,
    "a task's argument": _task_argument,
    "a dataset elsewhere": _dataset_elsewhere,
    "a module in the run folder": _module_in_folder,
}
STUDY_WRITTEN = ("study.json", "failed.json", "logs/00-TD7--toys_Point-v0.log")
RUN_ATTACKS: Mapping[str, Attack] = {**_link_attacks(WRITTEN, FOLDERS), **NAMES}
STUDY_ATTACKS: Mapping[str, Attack] = {
    **_link_attacks(STUDY_WRITTEN, ("logs",)),
    "a task of a module": _study_of_module,
}


SAMPLES = {"run": "checkpointed/run", "study": "study/study"}


class Case(NamedTuple):
    sample: str  # "run" or "study"
    attack: str
    command: str


CASES: Sequence[Case] = [
    *(Case("run", attack, command) for attack in RUN_ATTACKS for command in RUN_COMMANDS),
    *(Case("study", attack, command) for attack in STUDY_ATTACKS for command in STUDY_COMMANDS),
]
FULL = len(CASES)


def run(trials: Sequence[int], seed: int, folder: Path) -> Outcome:
    return in_loaded_process(_run, trials, seed, folder)


def _run(trials: Sequence[int], seed: int, folder: Path) -> Outcome:
    made = samples.samples(folder)  # with the signature of another user
    key = folder / "user" / "td7" / "key"
    key.parent.mkdir(parents=True)
    key.write_bytes(bytes(range(32)))
    os.environ["XDG_CONFIG_HOME"] = str(folder / "user")
    order = np.random.default_rng(seed).permutation(len(CASES))
    cases = [CASES[i] for i in order]
    outcome = in_lanes(trials, folder, partial(_trial, cases, made))
    if not times_of_reading_are_kept(folder):
        outcome.notes.append("this file system keeps no times of reading: reads were not noticed")
    return outcome


def _trial(cases: Sequence[Case], made: Path, number: int, folder: Path) -> str:
    case = cases[number % len(cases)]
    attacks, commands = {
        "run": (RUN_ATTACKS, RUN_COMMANDS),
        "study": (STUDY_ATTACKS, STUDY_COMMANDS),
    }[case.sample]
    outside, sandbox = folder / "outside", folder / "here"
    outside.mkdir()
    (outside / "mine").write_text("mine\n")
    shutil.copytree(made / SAMPLES[case.sample], sandbox / case.sample)
    attacks[case.attack](sandbox / case.sample, outside)
    canaries = Canaries(outside, reads="hard link" not in case.attack)
    result = in_child(commands[case.command], sandbox)
    try:
        canaries.check(result)
        check_ended(result)
        if result.status:
            check_refused(result, warnings=case.command == "resume")
    except AssertionError as error:
        raise AssertionError(f"{case.command}, {case.attack}: {error}") from None
    return f"{case.command}: {'refused' if result.status else 'done without it'}"

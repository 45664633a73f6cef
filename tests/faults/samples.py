"""Small run folders and a study, made once, which trials copy and spoil."""

import dataclasses
import shutil
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import dataset_files
import td7
import toys
from faults.forks import in_child
from folders import SMALL, words
from td7.datasets.hdf5 import write_hdf5
from td7.studies.folder import write_request
from td7.studies.run import make_plan, study_options
from td7.training.start import start

assert toys  # registers the tasks
TASK = "toys:Point-v0"
SEEDS = (2, 5)
STOPS = (40, 60)  # steps at which the runs were stopped, each time with a snapshot
LAST = 80  # steps to which a trial extends them
RUNS: Mapping[str, Mapping[str, Any]] = {
    "checkpointed": {"set": SMALL},
    "lockstep": {"set": {**SMALL, "checkpoints": "none"}},
    "offline": {"set": {k: v for k, v in SMALL.items() if k != "random_steps"}},
}
STUDY_WORDS = (
    *("study", "ablation-main", "--rows", "TD7", "--env", TASK, "--seeds", "2,5"),
    *("--steps", "40", "--evaluate-every", "20", "--evaluation-episodes", "2", "--quiet"),
    *("--set", *words(SMALL), "--out", "study"),
)


def dataset(path: Path) -> Path:
    """Write a small dataset for the toy task."""
    fields = dataset_files.fields_of("..T...C....T..C" * 4)
    for name in ("observations", "next_observations"):
        fields[name] = fields[name][:, :2]
    write_hdf5(path, **fields, attributes={"task": TASK, "kind": "sample"} | BOUNDS)
    return path


BOUNDS = {"action_low": [-1.0, -2.0], "action_high": [3.0, 2.0]}


def make_run(kind: str, out: Path, data: Path) -> None:
    """A run of two seeds with two snapshots, that keeps the policies of every 20 steps."""
    what: dict[str, Any] = {"dataset": str(data)} if kind == "offline" else {"env": TASK}
    td7.train(
        **what,
        **RUNS[kind],
        seeds=SEEDS,
        steps=STOPS[0],
        evaluate_every=20,
        evaluation_episodes=2,
        metrics_every=5,
        keep_policies=20,
        workers="0",
        quiet=True,
        out=str(out),
    )
    for steps in STOPS[1:]:
        td7.resume(out, steps=steps, quiet=True)


def make_study(out: Path) -> None:
    """A study whose only run is finished; `STUDY_WORDS` continue it."""
    options = {
        "name": "ablation-main",
        "rows": ["TD7"],
        "env": [TASK],
        "seeds": SEEDS,
        "steps": 40,
        "evaluate_every": 20,
        "evaluation_episodes": 2,
        "set": dict(SMALL),
        "out": str(out),
    }
    plan = make_plan(study_options(options))
    write_request(plan.request, out)
    for run in plan.states:
        start(dataclasses.replace(run.options, out=str(run.folder), quiet=True))
    # A run that is done is not in it, but the file may have stayed behind.
    (out / "failed.json").write_text('{\n  "old--run": "the power failed"\n}\n')


def samples(folder: Path) -> Path:
    """A folder with every sample, made once for all parts whose folders lie beside this one.

    data.hdf5, KIND/run per kind of RUNS, study/study.
    """
    made = folder.parent / "samples"
    if not made.exists():
        made.mkdir()
        result = in_child(partial(_make_all, made), made)
        if result.status:
            shutil.rmtree(made)
            raise RuntimeError(f"the samples cannot be made: {result.text}")
    return made


def _make_all(folder: Path) -> int:
    data = dataset(folder / "data.hdf5")
    for kind in RUNS:
        (folder / kind).mkdir()
        make_run(kind, folder / kind / "run", data)
    (folder / "study").mkdir()
    make_study(folder / "study" / "study")
    return 0

"""Weights & Biases: a run per member, in a group."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from td7.runs.loggers.scalars import GROUPS, Point
from td7.runs.loggers.services import LoggedRun, Outcome

STEP = "global_step"  # the axis of all charts; openrlbenchmark needs this name


class WandbRuns:
    """The members of a run as runs of W&B.

    W&B's own files are where it always has them, in WANDB_DIR or the working folder, and not in the
    run folder, since they contain links.
    """

    name = "W&B"

    def __init__(self, project: str, run: LoggedRun) -> None:
        """`project` may be ENTITY/PROJECT."""
        *entity, self._project = project.split("/")
        self._entity = "".join(entity) or None
        self._run = run
        self._folder = os.environ.get("WANDB_DIR") or Path.cwd()  # a task may change it later
        self._runs: dict[int, Any] = {}

    def open(self) -> str:
        for member in self._run.record.members.ids:
            if member not in self._runs:
                self._runs[member] = self._open(member)
        first = next(iter(self._runs.values()))
        if first.offline:
            files = Path(first.dir).parents[1] / f"offline-run-*-{self._run.id('*')}"
            return f"offline, `wandb sync {files}` uploads it"
        return first.project_url or ""

    def _open(self, member: int) -> Any:
        import wandb

        record = self._run.record
        run = wandb.init(
            project=self._project,
            entity=self._entity,
            id=self._run.id(member),
            name=self._run.name(member),
            group=self._run.group,
            tags=self._run.tags,
            config=self._run.config(member),
            dir=self._folder,
            resume="allow",
            reinit="create_new",  # a user's own run goes on as well
            settings=wandb.Settings(
                console="off",
                silent=True,
                save_code=False,
                x_disable_stats=member != record.members.ids[0],  # of the machine: once is enough
            ),
        )
        for group in GROUPS:
            run.define_metric(f"{group}/*", step_metric=STEP)
        return run

    def send(self, points: Sequence[Point]) -> None:
        for point in points:
            run = self._runs[point.id]
            # W&B knows the last number of a run that it continues: what a process logged after
            # the snapshot that the run resumes is there already.
            if point.rows >= run.step:
                run.log({STEP: point.step, **point.scalars}, step=point.rows, commit=True)

    def close(self, outcome: Outcome) -> None:
        for run in self._runs.values():
            run.finish(exit_code=0 if outcome is Outcome.FINISHED else 1)

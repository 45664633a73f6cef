"""MLflow: a run per member, with their group as a tag."""

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from td7.runs.loggers.scalars import Point
from td7.runs.loggers.services import LoggedRun, Outcome

ID = "td7.id"  # the tag by which a resumed run finds its runs
# MLflow's limits: metrics and parameters per request, characters of a parameter in older servers.
MOST_METRICS, MOST_PARAMS, LONGEST_PARAM = 1_000, 100, 500
STATUS = {Outcome.FINISHED: "FINISHED", Outcome.FAILED: "FAILED", Outcome.STOPPED: "KILLED"}

Item = TypeVar("Item")


class MlflowRuns:
    """The members of a run as runs of MLflow."""

    name = "MLflow"

    def __init__(self, uri: str, run: LoggedRun) -> None:
        self._uri = uri
        self._run = run
        self._client: Any = None
        self._ids: dict[int, str] = {}
        self._logged: dict[tuple[int, str], set[int]] = {}  # steps, by member and tag

    def open(self) -> str:
        if self._uri.startswith("file:"):
            # MLflow refuses folders otherwise, but the user has asked for one.
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        from mlflow import MlflowClient

        self._client = self._client or MlflowClient(self._uri)
        experiment = self._experiment()
        for member in self._run.record.members.ids:
            if member not in self._ids:
                self._ids[member] = self._continued(experiment, member) or self._new(
                    experiment, member
                )
        is_shown = self._uri.startswith("http")
        return f"{self._uri.rstrip('/')}/#/experiments/{experiment}" if is_shown else self._uri

    def _experiment(self) -> str:
        from mlflow.exceptions import MlflowException

        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "td7")
        with suppress(MlflowException):  # it exists, perhaps since another run has just made it
            return str(self._client.create_experiment(name))
        return str(self._client.get_experiment_by_name(name).experiment_id)

    def _continued(self, experiment: str, member: int) -> str:
        """Return the id of the member's run, which an earlier process began, or ""."""
        query = f"tags.`{ID}` = '{self._run.id(member)}'"
        runs = self._client.search_runs([experiment], query, max_results=1)
        if not runs:
            return ""
        id = str(runs[0].info.run_id)
        for tag in runs[0].data.metrics:
            history = self._client.get_metric_history(id, tag)
            self._logged[member, tag] = {metric.step for metric in history}
        self._client.update_run(id, status="RUNNING")
        return id

    def _new(self, experiment: str, member: int) -> str:
        from mlflow.entities import Param

        run = self._run
        tags = {ID: run.id(member), "group": run.group, "version": run.version}
        name = run.name(member)
        id = str(self._client.create_run(experiment, run_name=name, tags=tags).info.run_id)
        params = [Param(name, value) for name, value in _flat(run.config(member))]
        for some in _parts(params, MOST_PARAMS):
            self._client.log_batch(id, params=some)
        return id

    def send(self, points: Sequence[Point]) -> None:
        """Log points; MLflow keeps every value that it gets, so a step is logged once."""
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        metrics: dict[int, list[Any]] = {member: [] for member in self._ids}
        for point in points:
            metrics[point.id] += [
                Metric(tag, value, now, point.step)
                for tag, value in point.scalars.items()
                if point.step not in self._logged.get((point.id, tag), ())
            ]
        for member, own in metrics.items():
            for some in _parts(own, MOST_METRICS):
                self._client.log_batch(self._ids[member], metrics=some)

    def close(self, outcome: Outcome) -> None:
        for id in self._ids.values():
            self._client.set_terminated(id, STATUS[outcome])


def _parts(items: Sequence[Item], most: int) -> Iterator[Sequence[Item]]:
    for i in range(0, len(items), most):
        yield items[i : i + most]


def _flat(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield parameters: `hyperparameters.batch_size` of what is a mapping, otherwise JSON."""
    for name, value in config.items():
        inner = value if isinstance(value, Mapping) else {"": value}
        for key, one in inner.items():
            text = one if isinstance(one, str) else json.dumps(one)
            yield f"{name}.{key}".rstrip("."), text[:LONGEST_PARAM]

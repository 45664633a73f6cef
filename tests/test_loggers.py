"""W&B and MLflow, with their real packages offline: what they get, and that they disturb no run."""

import re
import socket
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

import td7
import toys
from folders import SMALL, results
from td7.errors import EXTRAS, InputError, RunError
from td7.options import StudyOptions
from td7.runs.loggers import selection, services
from td7.runs.loggers.mlflow import MlflowRuns
from td7.runs.loggers.scalars import Point, Scalars
from td7.runs.loggers.selection import Loggers, absolute_uri
from td7.runs.loggers.services import LoggedRun, Outcome, ServiceLogger
from td7.runs.loggers.wandb import WandbRuns
from td7.runs.members import Members
from td7.runs.record import RunRecord
from td7.studies.run import make_plan
from test_listeners import GIVEN, scalars
from test_structure import ROOT
from wandb_files import WandbFile, read_wandb

assert toys  # registers the tasks
Logged = dict[str, dict[int, float]]  # tag: step: value
SEEDS = (0, 4)


@pytest.fixture(scope="module")
def offline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of W&B and of MLflow, which reach no network here."""
    import wandb

    folder = tmp_path_factory.mktemp("services")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WANDB_MODE", "offline")
        patch.setenv("WANDB_DIR", str(folder))
        patch.setenv("WANDB_CACHE_DIR", str(folder / "cache"))
        patch.setenv("WANDB_CONFIG_DIR", str(folder / "config"))
        patch.setenv("WANDB_TAGS", "mine, yours")
        patch.setenv("WANDB_ERROR_REPORTING", "false")
        patch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
        wandb.teardown()  # it may have read the environment
        yield folder
        wandb.teardown()  # which ends its process


@pytest.fixture(scope="module")
def logged(offline: Path) -> td7.Run:
    """A run with all loggers, which was resumed once."""
    run = td7.train(
        **GIVEN,
        steps=80,
        set=SMALL,
        tensorboard=True,
        wandb="team/cheetah",
        mlflow=f"file:{offline}/mlruns",
        out=str(offline / "cheetah"),
    )
    with pytest.MonkeyPatch.context() as patch:
        # W&B's names have seconds only: a file of the same second would replace the first.
        (offline / "later").mkdir()
        patch.setenv("WANDB_DIR", str(offline / "later"))
        return td7.resume(run, steps=120, quiet=True)


@pytest.fixture(scope="module")
def wandb_files(logged: td7.Run, offline: Path) -> dict[int, list[WandbFile]]:
    """What W&B has of each seed: a file of the run and one of its resumption."""
    import wandb

    wandb.teardown()  # its process has written everything then
    id = logged.config["logging_id"]
    return {
        seed: [
            read_wandb(file)
            for folder in (offline, offline / "later")
            for file in folder.glob(f"wandb/offline-run-*-{id}-{seed}/*.wandb")
        ]
        for seed in SEEDS
    }


def mlflow_client(offline: Path) -> Any:
    from mlflow import MlflowClient

    return MlflowClient(f"file:{offline}/mlruns")


@pytest.fixture(scope="module")
def mlflow_runs(logged: td7.Run, offline: Path) -> dict[int, Any]:
    client = mlflow_client(offline)
    (experiment,) = [e for e in client.search_experiments() if e.name != "Default"]
    assert experiment.name == "td7"
    runs = client.search_runs([experiment.experiment_id], "tags.group = 'cheetah'")
    return {int(run.data.params["seed"]): run for run in runs}


def without_time(tags: Mapping[str, Any]) -> dict[str, Any]:
    return {tag: value for tag, value in tags.items() if tag != "time/fps"}


def test_all_loggers_agree(
    logged: td7.Run,
    offline: Path,
    wandb_files: dict[int, list[WandbFile]],
    mlflow_runs: dict[int, Any],
) -> None:
    """Tags, steps and values, over the resumption as well."""
    client = mlflow_client(offline)
    for seed in SEEDS:
        expected = scalars(logged.path / "tensorboard" / f"seed-{seed}")
        returns = logged.evaluations.query(f"seed == {seed}").groupby("step")["return"].mean()
        assert expected["eval/mean_reward"] == pytest.approx(returns.to_dict())
        in_wandb: Logged = {}
        for file in wandb_files[seed]:
            for row in file.rows:
                for tag, value in row.items():
                    if "/" in tag:
                        in_wandb.setdefault(tag, {})[int(row["global_step"])] = value
        in_mlflow: Logged = {}
        run = mlflow_runs[seed].info.run_id
        for tag in mlflow_runs[seed].data.metrics:
            history = client.get_metric_history(run, tag)
            in_mlflow[tag] = {metric.step: metric.value for metric in history}
            assert len(in_mlflow[tag]) == len(history) or tag.startswith(
                "train/"
            )  # may share steps
        assert set(in_wandb) == set(in_mlflow) == set(expected)
        for tag, values in without_time(expected).items():
            assert in_wandb[tag] == in_mlflow[tag] == pytest.approx(values, rel=1e-6)


def test_they_change_nothing(logged: td7.Run, tmp_path: Path) -> None:
    run = td7.train(**GIVEN, steps=80, set=SMALL, out=str(tmp_path / "plain"))
    plain = td7.resume(run, steps=120, quiet=True)
    assert results(plain.path) == results(logged.path)
    assert "logging_id" not in plain.config


def test_a_run_of_wandb_is_what_openrlbenchmark_looks_for(
    logged: td7.Run, wandb_files: dict[int, list[WandbFile]]
) -> None:
    """Its filters are config.exp_name, config.env_id and tags; its axis is global_step."""
    for seed, files in wandb_files.items():
        assert len(files) == 2  # train and resume, of one id
        assert {file.run.run_id for file in files} == {f"{logged.config['logging_id']}-{seed}"}
        for file in files:
            assert (file.run.entity, file.run.project) == ("team", "cheetah")
            assert (file.run.run_group, file.run.display_name) == (
                "cheetah",
                f"cheetah, seed {seed}",
            )
            version, *others = file.run.tags
            assert re.fullmatch(r"v[\d.]+(-g[0-9a-f]{7}(-dirty)?)?", version)
            assert others == ["mine", "yours"]
            names = {name: file.config[name] for name in ("exp_name", "env_id", "seed")}
            assert names == {"exp_name": "td7", "env_id": "Point-v0", "seed": seed}
            for name in ("hyperparameters", "versions", "task", "evaluate_every"):
                assert file.config[name] == logged.config[name]
            assert file.axes == dict.fromkeys(
                ("eval/*", "rollout/*", "time/*", "train/*"), "global_step"
            )
            assert file.exit_code == 0
            assert all("global_step" in row for row in file.rows)
        numbers = [row["_step"] for file in files for row in file.rows]
        assert numbers == sorted(set(numbers))  # those of the resumption come after the others


def test_a_run_of_mlflow_is_continued(logged: td7.Run, mlflow_runs: dict[int, Any]) -> None:
    assert set(mlflow_runs) == set(SEEDS)  # one each, though there were two processes
    for seed, run in mlflow_runs.items():
        assert (run.info.status, run.info.run_name) == ("FINISHED", f"cheetah, seed {seed}")
        assert run.data.tags["td7.id"] == f"{logged.config['logging_id']}-{seed}"
        assert run.data.params["hyperparameters.batch_size"] == "16"
        assert run.data.params["env_id"] == "Point-v0"
        assert run.data.params["seeds"] == "[0, 4]"


def test_points_after_the_snapshot_are_logged_once(logged: td7.Run, offline: Path) -> None:
    """By hand: a process died at step 60, the next one resumes from step 20."""
    data = {**logged.config, "logging_id": "crashed"}
    run = logged_run(folder=Path("crashed"), data=data)
    points = [Point(3, step, {"eval/mean_reward": float(step)}, step) for step in (20, 40, 60, 80)]
    for some in (points[:3], points[1:]):
        service = MlflowRuns(f"file:{offline}/mlruns", run)
        service.open()
        service.send(some)
    client = mlflow_client(offline)
    (found,) = client.search_runs(["0", *experiments(client)], "tags.`td7.id` = 'crashed-3'")
    assert found.info.status == "RUNNING"
    history = client.get_metric_history(found.info.run_id, "eval/mean_reward")
    assert [metric.step for metric in history] == [20, 40, 60, 80]
    received: list[int] = []
    online = WandbRuns("cheetah", run)
    continued = SimpleNamespace(step=61, log=lambda row, step, commit: received.append(step))
    online._runs = {3: continued}
    online.send(points)
    assert received == [80]


NAMES: dict[str, Any] = {
    "members": Members((3,)),
    "algorithm": "td7",
    "variant": "",
    "dataset": None,
    "task": SimpleNamespace(name="Point-v0"),
    "versions": {"td7": "1.2.3"},
}


def experiments(client: Any) -> list[str]:
    return [experiment.experiment_id for experiment in client.search_experiments()]


def logged_run(**changes: Any) -> LoggedRun:
    data = {"logging_id": "abc", "commit": None}
    fields = {"folder": Path("runs/cheetah"), "data": data, **NAMES, **changes}
    return LoggedRun(SimpleNamespace(**fields))  # type: ignore[arg-type]


def test_names_of_studies_datasets_and_versions() -> None:
    row = logged_run(variant="design/Q, zsa only")
    assert row.group == "design/Q, zsa only on Point-v0"
    assert row.config(3)["exp_name"] == "design/Q, zsa only"
    dataset = SimpleNamespace(d4rl="hopper-medium-v2", source="data/hopper.hdf5")
    assert logged_run(dataset=dataset).env_id == "hopper-medium-v2"
    own = SimpleNamespace(d4rl=None, source="data/own.hdf5")
    assert logged_run(dataset=own).env_id == "own"
    commit = {"id": "0123456789", "is_clean": True}
    assert logged_run(data={"commit": commit}).version == "v1.2.3-g0123456"
    assert logged_run(data={"commit": {**commit, "is_clean": False}}).version.endswith("-dirty")
    assert logged_run().version == "v1.2.3"


def test_a_point_has_the_number_of_its_seeds_last_row() -> None:
    points = Scalars({1: 0, 2: 0}).points
    columns = ("seed", "step", "episode", "return", "length")
    rows = [(seed, 0, i, "1.0", 20) for seed in (1, 2) for i in range(3)]
    assert [(p.id, p.rows) for p in points("evaluations", columns, rows)] == [(1, 3), (2, 3)]
    assert [p.rows for p in points("episodes", columns, [(2, 20, 0, "1.0", 20)])] == [4]


# -- services that fail ----------------------------------------------------------------------------


class FakeService:
    """A service that raises in its first calls, and keeps what it gets."""

    name = "Fake"

    def __init__(self, failures: int = 0, error: BaseException | None = None) -> None:
        self.failures = failures
        self.error = error or ConnectionError("no network")
        self.received: list[Point] = []
        self.calls: list[str] = []
        self.works = Event()

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if self.failures:
            self.failures -= 1
            raise self.error
        self.works.set()

    def open(self) -> str:
        self._call("open")
        return "here"

    def send(self, points: Sequence[Point]) -> None:
        self._call("send")
        self.received += points

    def close(self, outcome: Outcome) -> None:
        self._call(outcome.value)


POINTS = [Point(0, step, {"eval/mean_reward": 1.0}, step) for step in range(5)]


def log_to(
    service: FakeService, error: BaseException | None = None, *, wait: bool = False
) -> tuple[list[str], list[str]]:
    """Log the points; return what is said and what is a warning. `wait` until the service works."""
    said: list[str] = []
    warnings: list[str] = []
    logger = ServiceLogger(service, said.append, warnings.append)
    logger.__enter__()
    for point in POINTS:
        logger.log(point)
    if wait:
        assert service.works.wait(30)
    logger.__exit__(None if error is None else type(error), error, None)
    return said, warnings


@pytest.mark.parametrize("error", [ConnectionError("no network"), SystemExit(1)])
def test_a_service_that_fails_is_tried_again(
    error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "RETRY_SECONDS", 0)
    service = FakeService(3, error)
    said, (warning,) = log_to(service, wait=True)
    assert said == ["Fake: here"]
    assert warning.startswith(f"Fake failed: {type(error).__name__}")
    assert warning.endswith("; the run continues, and its tables are complete")
    assert service.received == POINTS
    assert service.calls[-1] == "finished"


def test_a_service_that_is_away_warns_once() -> None:
    service = FakeService(1_000)
    said, warnings = log_to(service)
    assert (said, service.received) == ([], [])
    first, last = warnings
    assert "Fake failed: ConnectionError: no network" in first
    assert last == "Fake has not received everything; the run's tables are complete"


def test_a_service_that_hangs_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "END_SECONDS", 0.05)
    hanging = Event()
    service = FakeService()
    monkeypatch.setattr(service, "send", lambda _: hanging.wait())
    _, warnings = log_to(service)
    hanging.set()
    assert warnings == ["Fake has not received everything; the run's tables are complete"]


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (None, "finished"),
        (RunError("the motor is cold"), "failed"),
        (td7.Stopped(15, Path()), "stopped"),
        (KeyboardInterrupt(), "stopped"),
    ],
)
def test_it_learns_how_the_run_ended(error: BaseException | None, outcome: str) -> None:
    service = FakeService()
    assert log_to(service, error) == (["Fake: here"], [])
    assert service.calls == ["open", "send", outcome]
    assert service.received == POINTS


def test_a_failing_service_ends_no_run(
    tmp_path: Path,
    offline: Path,
    logged: td7.Run,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def fail(self: WandbRuns) -> str:
        raise RuntimeError("wandb broke")

    monkeypatch.setattr(WandbRuns, "open", fail)
    given = {**GIVEN, "set": SMALL, "wandb": "cheetah"}
    run = td7.train(**given, steps=80, out=str(tmp_path / "run"))
    first, last = capfd.readouterr().err.splitlines()
    assert first.startswith("W&B failed: RuntimeError: wandb broke; the run continues")
    assert last == "W&B has not received everything; the run's tables are complete"
    again = td7.resume(run, steps=120, quiet=True)
    assert results(again.path) == results(logged.path)


def test_a_failed_run_is_marked(offline: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="motor"):
        td7.train(
            **{**GIVEN, "seeds": 0},
            env_kwargs={"fault": "raise"},
            steps=80,
            set=SMALL,
            wandb="cheetah",
            mlflow=f"file:{offline}/mlruns",
            out=str(tmp_path / "failed"),
        )
    client = mlflow_client(offline)
    (run,) = client.search_runs(experiments(client), "tags.group = 'failed'")
    assert run.info.status == "FAILED"
    import wandb

    wandb.teardown()  # its process has written everything then
    id = RunRecord.read(tmp_path / "failed").data["logging_id"]
    (file,) = offline.glob(f"wandb/offline-run-*-{id}-0/*.wandb")
    assert read_wandb(file).exit_code == 1


# -- checked before a run begins -------------------------------------------------------------------


def refused(tmp_path: Path, **options: Any) -> str:
    """Return the line that refuses the options; nothing is written."""
    out = tmp_path / "run"
    with pytest.raises(InputError) as error:
        td7.train(**GIVEN, steps=80, set=SMALL, out=str(out), **options)
    assert not out.exists()
    message = str(error.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("option", "package"),
    [("tensorboard", "tensorboard"), ("wandb", "wandb"), ("mlflow", "mlflow-skinny")],
)
@pytest.mark.parametrize("spec", [None, SimpleNamespace(origin=None)])
def test_without_the_package(
    tmp_path: Path, option: str, package: str, spec: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder of this name, such as W&B makes, is no package."""
    monkeypatch.setattr(selection, "find_spec", lambda _: spec)
    value = {"tensorboard": True, "wandb": "cheetah", "mlflow": f"file:{tmp_path}"}[option]
    assert refused(tmp_path, **{option: value}) == (
        f"{option} needs {package}, which the extra '{option}' installs: "
        f"pip install -e '.[{option}]' in a clone, or pip install {package}"
    )


@pytest.mark.parametrize("project", ["a/b/c", "a#b", "/a", "a/", "x" * 129])
def test_a_project_that_wandb_refuses(tmp_path: Path, project: str) -> None:
    message = refused(tmp_path, wandb=project)
    assert message.startswith(f"wandb={project!r}: allowed: PROJECT or ENTITY/PROJECT")


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        ("", " has no API key: `wandb login` stores one"),
        ("short", ": WANDB_API_KEY invalid: API key must have 40+ characters, has 5"),
    ],
)
def test_without_a_key(
    tmp_path: Path, key: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import wandb

    wandb.teardown()
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("WANDB_API_KEY", key)
    remedy = "; with WANDB_MODE=offline in the environment it only writes files"
    assert refused(tmp_path, wandb="cheetah") == f"wandb=cheetah{problem}{remedy}"
    wandb.teardown()


@pytest.mark.parametrize(
    "uri", ["mlruns", "http://", "file:", "ftp://x", "sqlite:", "sqlite:///", "http://[x"]
)
def test_what_is_no_uri(tmp_path: Path, uri: str) -> None:
    message = refused(tmp_path, mlflow=uri)
    assert message.startswith(f"mlflow={uri}: ")


def test_a_server_that_does_not_answer(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        uri = f"http://127.0.0.1:{free.getsockname()[1]}"
    assert refused(tmp_path, mlflow=uri) == f"mlflow={uri} cannot be reached: Connection refused"


def test_a_password_is_not_recorded(tmp_path: Path) -> None:
    message = refused(tmp_path, mlflow="https://me:secret@host")
    assert "secret" not in message
    assert "MLFLOW_TRACKING_PASSWORD" in message


def test_paths_hold_from_any_folder(working_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert absolute_uri("file:mlruns") == (working_folder / "mlruns").as_uri()
    assert absolute_uri("file:///tmp/my%20runs") == "file:///tmp/my%20runs"
    assert absolute_uri("https://host/mlflow") == "https://host/mlflow"
    assert absolute_uri("databricks://profile") == "databricks://profile"
    monkeypatch.setattr(selection, "find_spec", lambda _: object())
    assert absolute_uri("sqlite:///a.db") == f"sqlite:///{working_folder / 'a.db'}"
    assert absolute_uri("sqlite:////tmp/a.db") == "sqlite:////tmp/a.db"
    monkeypatch.undo()
    options = StudyOptions(name="design", rows="TD3", env="Hopper-v4", mlflow="file:mlruns")
    (run,) = make_plan(options).states
    assert Path(run.options.mlflow.removeprefix("file://")).is_absolute()


def test_a_run_is_resumed_without_the_package(
    tmp_path: Path,
    offline: Path,
    logged: td7.Run,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    warnings: list[str] = []
    monkeypatch.setattr(selection, "find_spec", lambda _: None)
    chosen = Loggers(tensorboard=True, wandb="cheetah", mlflow="http://gone:1")
    assert chosen.usable(warnings.append) == Loggers()
    assert [line.split()[0] for line in warnings] == ["tensorboard", "wandb", "mlflow"]
    assert all(line.endswith("; the run continues without it") for line in warnings)


def test_a_strangers_run_is_not_logged(logged: td7.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would write to a project of yours, or send what it learns to a server of theirs."""
    monkeypatch.setattr("td7.runs.trust.is_signed", lambda _: False)
    with pytest.raises(InputError, match="is logged to a service: add --trust if you trust"):
        td7.resume(logged, steps=160, quiet=True)


def test_extras_are_those_of_the_package() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = declared["optional-dependencies"]
    assert set(EXTRAS) == set(extras) - {"dev", "docs"}
    for extra, packages in EXTRAS.items():
        named = [re.split(r"[><=;]", one)[0].strip() for one in extras[extra]]
        assert [package.strip("'") for package in packages] == named

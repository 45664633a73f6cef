"""Which loggers a run has, checked before it begins."""

import re
import socket
from collections.abc import Callable
from contextlib import redirect_stderr
from dataclasses import dataclass, replace
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from urllib.parse import unquote, urlsplit

from td7.errors import InputError, Option, assigned, needs_extra, one_line
from td7.options import TrainOptions

CONNECT_SECONDS = 5.0
PORTS = {"http": 80, "https": 443}
OFFLINE = "with WANDB_MODE=offline in the environment it only writes files"


@dataclass(frozen=True)
class Loggers:
    """The options of a run that say where it is logged; config.json has them by these names."""

    tensorboard: bool = False
    wandb: str = ""  # PROJECT or ENTITY/PROJECT
    mlflow: str = ""  # URI

    @classmethod
    def of(cls, options: TrainOptions) -> "Loggers":
        return cls(options.tensorboard, options.wandb, options.mlflow)

    @property
    def has_service(self) -> bool:
        return bool(self.wandb or self.mlflow)

    def checked(self) -> "Loggers":
        """Return them with places that hold from any folder; raise if one cannot work."""
        self._check_packages()
        _check_key(self.wandb, verify=True)
        _check_server(self.mlflow)
        return replace(self, mlflow=absolute_uri(self.mlflow))

    def usable(self, warn: Callable[[str], None]) -> "Loggers":
        """Return those of a run that is resumed: one that lacks its package ends nothing."""
        chosen = self
        for name in ("tensorboard", "wandb", "mlflow"):
            only = replace(Loggers(), **{name: getattr(self, name)})
            try:
                only._check_packages()
                _check_key(only.wandb, verify=False)
            except InputError as error:
                warn(f"{error}; the run continues without it")
                chosen = replace(chosen, **{name: getattr(Loggers(), name)})
        return chosen

    def _check_packages(self) -> None:
        if self.tensorboard:
            _check_package("tensorboard")
        if self.wandb:
            _check_project(self.wandb)
            _check_package("wandb")
        if self.mlflow:
            absolute_uri(self.mlflow)  # raises for what is none
            _check_package("mlflow")


def _check_package(name: str) -> None:
    spec = find_spec(name)
    if spec is None or spec.origin is None:  # a folder of this name, such as W&B's, is none
        raise needs_extra(str(Option(name)), name)


def _check_project(project: str) -> None:
    if not re.fullmatch(r"([^/\\#?%:\s]+/)?[^/\\#?%:]{1,128}", project):
        raise InputError(
            f"{assigned(Option('wandb'), repr(project))}: allowed: PROJECT or ENTITY/PROJECT, "
            r"without any of \ # ? % :"
        )


def _check_key(project: str, *, verify: bool) -> None:
    """Raise if W&B would ask for a key, or, with `verify`, if it does not accept the key."""
    if not project:
        return
    import wandb

    option = assigned(Option("wandb"), project)
    if wandb.setup().settings.mode not in ("online", "shared"):
        return
    try:
        with redirect_stderr(StringIO()):  # it prints errors as well as raising them
            has_key = wandb.login(prompt=False, verify=verify)
    except wandb.Error as error:
        raise InputError(f"{option}: {one_line(error, 300).rstrip('.')}; {OFFLINE}") from None
    if not has_key:
        raise InputError(f"{option} has no API key: `wandb login` stores one; {OFFLINE}")


def absolute_uri(uri: str) -> str:
    """Return MLflow's URI with an absolute path if it has one; raise for what is no URI."""
    option = assigned(Option("mlflow"), uri)
    try:
        parts = urlsplit(uri)
        host, password = parts.hostname, parts.password
    except ValueError as error:
        raise InputError(f"{option}: {error}") from None
    if password:
        raise InputError(
            f"{Option('mlflow')} has a password, which config.json would show: use "
            "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD in the environment"
        )
    if parts.scheme == "file" and parts.path:
        return Path(unquote(parts.path)).absolute().as_uri()
    if uri.startswith("sqlite:///") and len(uri) > len("sqlite:///"):
        if find_spec("sqlalchemy") is None:
            raise InputError(f"{option} needs all of MLflow: pip install mlflow")
        return f"sqlite:///{Path(uri.removeprefix('sqlite:///')).absolute()}"
    if not uri or (parts.scheme in PORTS and host) or uri.startswith("databricks"):
        return uri
    raise InputError(
        f"{option}: allowed: http://HOST:PORT, https://HOST, file:FOLDER, sqlite:///FILE or "
        "databricks"
    )


def _check_server(uri: str) -> None:
    """Raise if nobody answers at the URI; the run itself waits for a server that went away."""
    parts = urlsplit(uri)
    if parts.scheme not in PORTS:
        return
    try:
        address = (parts.hostname, parts.port or PORTS[parts.scheme])
        socket.create_connection(address, CONNECT_SECONDS).close()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{assigned(Option('mlflow'), uri)} cannot be reached: {reason}") from None

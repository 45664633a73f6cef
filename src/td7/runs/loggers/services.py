"""Where a run can be logged to, and what that needs."""

from importlib.util import find_spec

from td7.errors import InputError


def check_package(name: str) -> None:
    """Raise if the package of the option `name` is not installed."""
    if find_spec(name) is None:
        raise InputError(f"{name} needs the {name} package: pip install 'td7[{name}]'")

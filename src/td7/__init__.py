"""td7: TD7 and SALE ("For SALE: State-Action Representation Learning for Deep RL").

import td7
run = td7.train("td7", env="HalfCheetah-v4", seeds=range(10), steps=300_000)
run.summary()
policy = run.policy(seed=0)
action, _ = policy.predict(observation)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from td7.api import Run, evaluate, load, report, resume, train
    from td7.errors import InputError, RunError, Stopped
    from td7.reports.compare import compare
    from td7.runs.export import export
    from td7.runs.policies import Policy
    from td7.studies.run import study
    from td7.tuning.result import Search
    from td7.tuning.run import tune

__version__ = "0.2.0"

__all__ = [
    "InputError",
    "Policy",
    "Run",
    "RunError",
    "Search",
    "Stopped",
    "compare",
    "evaluate",
    "export",
    "load",
    "report",
    "resume",
    "study",
    "train",
    "tune",
]

_MODULES = {
    **dict.fromkeys(("InputError", "RunError", "Stopped"), "errors"),
    "Policy": "runs.policies",
    "compare": "reports.compare",
    "export": "runs.export",
    "study": "studies.run",
    "Search": "tuning.result",
    "tune": "tuning.run",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that worker processes load no PyTorch."""
    if name not in __all__:
        raise AttributeError(f"module 'td7' has no attribute {name!r}")
    return getattr(import_module(f"td7.{_MODULES.get(name, 'api')}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

"""The registry of algorithms, and the names that a module needs to add one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from td7.algorithms import losses
from td7.algorithms.config import LearnerConfig, OnlineConfig
from td7.algorithms.cql import CQL, CQLConfig
from td7.algorithms.iql import IQL, IQLConfig
from td7.algorithms.learner import Batch, Learner, Turn, stage
from td7.algorithms.sac import SAC, SACConfig
from td7.algorithms.td3 import TD3, TD3Config
from td7.algorithms.td3_bc import TD3BC, TD3BCConfig
from td7.algorithms.td3_ofe import TD3OFE, TD3OFEConfig
from td7.algorithms.td7 import TD7, TD7Config
from td7.algorithms.tqc import TQC, TQCConfig
from td7.algorithms.xql import XQL, XQLConfig
from td7.configs import setting
from td7.errors import InputError, matched
from td7.modules import import_named
from td7.networks.description import Layer, Layout, Network, mlp
from td7.networks.masked import assign, polyak
from td7.networks.optimiser import ParameterGroup, parameter_group, states
from td7.networks.scalars import Scalar, spread
from td7.networks.stacked import Parameters, apply, unflatten
from td7.types import Exploration, RowLayout, Task, TaskSpec

__all__ = [
    "ALGORITHMS",
    "Algorithm",
    "Batch",
    "Exploration",
    "Layer",
    "Layout",
    "Learner",
    "LearnerConfig",
    "Network",
    "OnlineConfig",
    "ParameterGroup",
    "Parameters",
    "RowLayout",
    "Scalar",
    "Task",
    "TaskSpec",
    "Turn",
    "algorithm",
    "apply",
    "assign",
    "losses",
    "mlp",
    "parameter_group",
    "polyak",
    "setting",
    "spread",
    "stage",
    "states",
    "unflatten",
]


@dataclass(frozen=True)
class Algorithm:
    name: str
    summary: str
    config: type[LearnerConfig]
    learner: type[Learner]
    online: bool = True  # whether it can collect its own data
    offline: Mapping[str, Any] | None = None  # its defaults on a dataset; None: only online


ALGORITHMS = {
    algorithm.name: algorithm
    for algorithm in (
        Algorithm(
            "td7",
            "TD3 with SALE, policy checkpoints and LAP; online and offline",
            TD7Config,
            TD7,
            offline={"cloning_weight": 0.1, "checkpoints": "none"},
        ),
        Algorithm("td3", "twin delayed DDPG, the baseline TD7 starts from", TD3Config, TD3),
        Algorithm("td3+ofe", "TD3 on the features of OFENet", TD3OFEConfig, TD3OFE),
        Algorithm("sac", "soft actor-critic with a learned temperature", SACConfig, SAC),
        Algorithm("tqc", "SAC with truncated quantile critics", TQCConfig, TQC),
        Algorithm("td3+bc", "TD3 that also clones; offline", TD3BCConfig, TD3BC, False, {}),
        Algorithm(
            "cql", "SAC with low values outside the data; offline", CQLConfig, CQL, False, {}
        ),
        Algorithm(
            "iql",
            "values and policy from the data's actions alone; offline",
            IQLConfig,
            IQL,
            False,
            {},
        ),
        Algorithm("xql", "IQL with Gumbel regression (X-QL); offline", XQLConfig, XQL, False, {}),
    )
}


def algorithm(name: str) -> Algorithm:
    """Look an algorithm up; `module:name` first imports the module, which registers it."""
    return ALGORITHMS[registered_name(name).rpartition(":")[2]]


def registered_name(name: str) -> str:
    """Return an algorithm's name, perhaps `module:name`, in the case in which it is registered."""
    module, colon, own_name = name.rpartition(":")
    if colon:
        import_named(module, f"algorithm {name!r}")
    try:
        return f"{module}{colon}{matched('algorithm', own_name, ALGORITHMS)}"
    except InputError as error:
        raise InputError(f"{error}, or MODULE:NAME for your own") from None

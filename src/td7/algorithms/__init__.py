"""The registry of algorithms."""

from dataclasses import dataclass

from td7.algorithms.base import Learner, OnlineConfig
from td7.algorithms.sac import SAC, SACConfig
from td7.algorithms.td3 import TD3, TD3Config
from td7.algorithms.td3_ofe import TD3OFE, TD3OFEConfig
from td7.algorithms.td7 import TD7, TD7Config
from td7.algorithms.tqc import TQC, TQCConfig
from td7.errors import unknown


@dataclass(frozen=True)
class Algorithm:
    name: str
    summary: str
    config: type[OnlineConfig]
    learner: type[Learner]


ALGORITHMS = {
    algorithm.name: algorithm
    for algorithm in (
        Algorithm("td7", "TD3 with SALE, policy checkpoints and LAP", TD7Config, TD7),
        Algorithm("td3", "twin delayed DDPG, the baseline TD7 starts from", TD3Config, TD3),
        Algorithm("td3+ofe", "TD3 on the features of OFENet", TD3OFEConfig, TD3OFE),
        Algorithm("sac", "soft actor-critic with a learned temperature", SACConfig, SAC),
        Algorithm("tqc", "SAC with truncated quantile critics", TQCConfig, TQC),
    )
}


def algorithm(name: str) -> Algorithm:
    if name not in ALGORITHMS:
        raise unknown("algorithm", name, ALGORITHMS)
    return ALGORITHMS[name]

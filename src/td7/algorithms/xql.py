"""X-QL: IQL's learner with Gumbel regression for values and a Huber loss for critics.

Glossary:
    q, v        as in IQL: the target critics' value of the data's action, and V(s)
    beta        the temperature of the Gumbel regression, which makes v a soft maximum of q

Sources of values, in full in docs/reproduction/offline-sources.md: the paper's command, files of
X-QL's program.
"""

from dataclasses import dataclass

from torch import Tensor

from td7.algorithms import losses
from td7.algorithms.iql import InSampleConfig, InSampleLearner
from td7.configs import setting


@dataclass(frozen=True)
class XQLConfig(InSampleConfig):
    """The authors' version with one set of hyperparameters, which the paper runs."""

    # the paper's C.3 and mujoco_consistent.sh, `--temp`
    gumbel_temperature: float = setting(
        2.0,
        "temperature of the Gumbel regression, beta",
        group="X-QL",
        above=0,
        per_member=True,
        search="0.5..5:log",
    )
    # the same, `--max_clip`
    gumbel_clip: float = setting(
        7.0,
        "maximum of (q - v) / beta",
        group="X-QL",
        above=0,
        per_member=True,
    )
    # critic.py, `update_q`
    huber_threshold: float = setting(
        20.0,
        "|error| from which the critics' loss is linear",
        group="X-QL",
        above=0,
        per_member=True,
    )


class XQL(InSampleLearner):
    config: XQLConfig
    value_norm = "layer"  # mujoco_config.py, `layernorm`

    def value_loss(self, difference: Tensor) -> Tensor:
        c = self.config
        return losses.gumbel_loss(difference, c.gumbel_temperature, c.gumbel_clip)

    def critic_loss(self, error: Tensor) -> Tensor:
        return losses.huber(error, self.config.huber_threshold)

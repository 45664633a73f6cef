"""Which loop trains a run."""

from collections.abc import Callable
from functools import partial
from typing import Any

from td7.datasets.dataset import Dataset
from td7.training.checkpointed import CheckpointedTraining
from td7.training.config import RunConfig
from td7.training.lockstep import LockstepTraining
from td7.training.offline import OfflineTraining


def loop_for(config: RunConfig, dataset: Dataset | None) -> Callable[..., Any]:
    """What trains a run in one process."""
    if dataset is not None:
        return partial(OfflineTraining, dataset=dataset)
    has_checkpoints = config.online.checkpoint_rule is not None
    return CheckpointedTraining if has_checkpoints else LockstepTraining

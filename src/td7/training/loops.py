"""Which loop trains a run."""

from td7.training.checkpointed import CheckpointedTraining
from td7.training.lockstep import LockstepTraining, evaluator_count
from td7.training.loop import Loop, SingleProcessTraining
from td7.training.multiprocess import MultiprocessTraining
from td7.training.offline import OfflineTraining
from td7.training.parts import RunSetup, build_parts


def loop_for(setup: RunSetup) -> Loop:
    if setup.config.processes > 1:
        return MultiprocessTraining(setup, single_process_loop)
    return single_process_loop(setup)


def single_process_loop(setup: RunSetup) -> SingleProcessTraining:
    """The loop that trains all seeds in this process."""
    loop: type[SingleProcessTraining]
    workers = setup.workers
    if setup.dataset is not None:
        loop = OfflineTraining
    elif setup.config.online.checkpoint_rule is not None:
        loop = CheckpointedTraining
    else:
        loop, workers = LockstepTraining, evaluator_count(setup.workers)
    parts = build_parts(setup, workers=workers)
    try:
        return loop(setup, parts)
    except BaseException:
        parts.resources.close()
        raise

"""The paper's studies: every variant is a row of data, and nothing else."""

from td7.errors import InputError, matched
from td7.studies.rows.ablation import ABLATION, ABLATION_MAIN
from td7.studies.rows.beyond import BEYOND
from td7.studies.rows.checkpoints import CHECKPOINTS
from td7.studies.rows.design import DESIGN
from td7.studies.rows.extrapolation import EXTRAPOLATION
from td7.studies.rows.offline import OFFLINE
from td7.studies.rows.online import ONLINE, RUNTIME
from td7.studies.rows.study import Row, Study

__all__ = ["STUDIES", "Row", "Study", "study", "variant", "variant_name"]

_ALL = (
    *(ONLINE, OFFLINE, DESIGN, EXTRAPOLATION, CHECKPOINTS),
    *(ABLATION_MAIN, ABLATION, RUNTIME, BEYOND),
)
STUDIES = {s.name: s for s in _ALL}


def study(name: str) -> Study:
    """Return the study by this name."""
    return STUDIES[matched("study", name, STUDIES)]


def variant(name: str) -> Row:
    """Return the row of "STUDY/LABEL", with the label as the paper's table prints it."""
    chosen, label = _study_and_label(name)
    return chosen.rows[label]


def variant_name(name: str) -> str:
    """Return "STUDY/LABEL" as the study has it, whatever the case of `name`."""
    chosen, label = _study_and_label(name)
    return f"{chosen.name}/{label}"


def _study_and_label(name: str) -> tuple[Study, str]:
    study_name, slash, label = name.partition("/")
    if not slash:
        raise InputError(f"a variant is STUDY/LABEL, such as {next(iter(DESIGN.names()))!r}")
    chosen = study(study_name)
    return chosen, chosen.label(label)

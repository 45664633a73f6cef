"""The paper's studies: every variant is a row of data, and nothing else."""

from td7.errors import InputError, unknown
from td7.studies.rows.ablation import ABLATION, ABLATION_MAIN
from td7.studies.rows.beyond import BEYOND
from td7.studies.rows.checkpoints import CHECKPOINTS
from td7.studies.rows.design import DESIGN
from td7.studies.rows.extrapolation import EXTRAPOLATION
from td7.studies.rows.offline import OFFLINE
from td7.studies.rows.online import ONLINE, RUNTIME
from td7.studies.rows.study import Row, Study

__all__ = ["STUDIES", "Row", "Study", "study", "variant"]

_ALL = (
    *(ONLINE, OFFLINE, DESIGN, EXTRAPOLATION, CHECKPOINTS),
    *(ABLATION_MAIN, ABLATION, RUNTIME, BEYOND),
)
STUDIES = {s.name: s for s in _ALL}


def study(name: str) -> Study:
    """Return the study by this name."""
    if name not in STUDIES:
        raise unknown("study", name, STUDIES)
    return STUDIES[name]


def variant(name: str) -> Row:
    """Return the row of "STUDY/LABEL", with the label as the paper's table prints it."""
    study_name, slash, label = name.partition("/")
    if not slash:
        raise InputError(f"a variant is STUDY/LABEL, such as {next(iter(DESIGN.names()))!r}")
    rows = study(study_name).rows
    if label not in rows:
        raise unknown(f"row of {study_name}", label, rows, shown=len(rows))
    return rows[label]

"""The paper's studies: every variant is a row of data, and nothing else."""

from dataclasses import replace

from td7.errors import InputError, matched
from td7.modules import import_named
from td7.options import ALGORITHM_NAMES
from td7.studies.rows.ablation import ABLATION, ABLATION_MAIN
from td7.studies.rows.beyond import BEYOND
from td7.studies.rows.checkpoints import CHECKPOINTS
from td7.studies.rows.design import DESIGN
from td7.studies.rows.extrapolation import EXTRAPOLATION
from td7.studies.rows.offline import OFFLINE
from td7.studies.rows.online import ONLINE, RUNTIME
from td7.studies.rows.study import Row, Study

__all__ = ["BUILT_IN", "STUDIES", "Row", "Study", "study", "study_and_row", "variant"]

_ALL = (
    *(ONLINE, OFFLINE, DESIGN, EXTRAPOLATION, CHECKPOINTS),
    *(ABLATION_MAIN, ABLATION, RUNTIME, BEYOND),
)
STUDIES = {s.name: s for s in _ALL}
BUILT_IN = tuple(STUDIES)  # every process knows these by name


def study(name: str) -> Study:
    """Return the study by this name; `module:name` first imports the module, which registers it."""
    module, colon, own_name = name.rpartition(":")
    if colon:
        import_named(module, f"study {name!r}")
        return _of_module(module, own_name)
    try:
        return STUDIES[matched("study", name, STUDIES)]
    except InputError as error:
        raise InputError(f"{error}, or MODULE:NAME for your own") from None


def _of_module(module: str, name: str) -> Study:
    """Return a study that a module has registered; its names are MODULE:NAME, for any process."""
    where = f"study '{module}:{name}': module {module!r}"
    if replaced := [s.name for s in _ALL if STUDIES.get(s.name) is not s]:
        raise InputError(f"{where} replaces td7's study {replaced[0]!r}; give it another name")
    own_names = [own_name for own_name in STUDIES if own_name not in BUILT_IN]
    if not own_names:
        raise InputError(f"{where} registers no study")
    own_name = matched("study", name, own_names)
    chosen = STUDIES[own_name]
    if set("/:") & set(own_name) or not chosen.rows:
        raise InputError(
            f"{where} registers {own_name!r}; a study has rows, and no / or : in its name"
        )
    rows = {
        label: replace(row, algorithm=_with_module(module, row.algorithm))
        for label, row in chosen.rows.items()
    }
    return replace(chosen, name=f"{module}:{own_name}", rows=rows)


def _with_module(module: str, algorithm: str) -> str:
    """Return an algorithm's name, as MODULE:NAME unless it is one of td7's."""
    is_known = ":" in algorithm or algorithm.lower() in ALGORITHM_NAMES
    return algorithm if is_known else f"{module}:{algorithm}"


def variant(name: str) -> Row:
    """Return the row of "STUDY/LABEL", with the label as the paper's table prints it."""
    return study_and_row(name)[1]


def study_and_row(name: str) -> tuple[Study, Row]:
    """Return the study and the row of "STUDY/LABEL", whatever the case of `name`."""
    study_name, slash, label = name.partition("/")
    if not slash:
        raise InputError(f"a variant is STUDY/LABEL, such as {DESIGN.names()[0]!r}")
    chosen = study(study_name)
    return chosen, chosen.rows[chosen.label(label)]

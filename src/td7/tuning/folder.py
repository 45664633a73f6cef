"""What the folder of a search holds.

OUT/search.json          what is searched and how, and which trials trained together
OUT/optuna.log           the trials and their scores: Optuna's journal
OUT/waves/000/           a run folder: the trials of a wave with all their seeds
OUT/trials.csv           a row per trial
OUT/report.html          the results on one page
"""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from td7.configs import parse_number
from td7.errors import InputError, one_line
from td7.files import check_no_links, read_sealed, typed, write_sealed
from td7.options import options_from
from td7.tuning.options import TuneOptions

SEARCH = "search.json"
# What may differ when a search is continued: how it is carried out, and how long it is.
MAY_CHANGE = (
    *("trials", "out", "quiet", "snapshot_every", "workers", "step_timeout", "processes"),
    *("threads", "wave", "backend", "at_once", "address", "cpus", "gpus"),
)


@dataclass
class Wave:
    """Trials that train side by side in one run, up to the same rung."""

    rung: int  # its index among the rungs
    trials: list[int]
    is_judged: bool = False


@dataclass
class SearchRecord:
    """search.json."""

    options: TuneOptions
    space: dict[str, str]  # the text of each dimension
    rungs: list[int]  # their steps
    waves: list[Wave]

    def write(self, folder: Path) -> None:
        options = {f.name: getattr(self.options, f.name) for f in dataclasses.fields(self.options)}
        options["wrapper"] = list(map(str, options["wrapper"]))
        waves = [dataclasses.asdict(wave) for wave in self.waves]
        data = {"options": options, "space": self.space, "rungs": self.rungs, "waves": waves}
        write_sealed(folder / SEARCH, data)

    @classmethod
    def read(cls, folder: Path) -> "SearchRecord | None":
        """Return what a folder holds; None if it holds no search."""
        if not folder.exists():
            return None
        check_no_links(folder)
        file = folder / SEARCH
        try:
            data = read_sealed(file)
        except FileNotFoundError:
            return None
        try:
            return cls(
                options_from(TuneOptions, typed("options", data["options"], dict)),
                {n: typed(n, text, str) for n, text in typed("space", data["space"], dict).items()},
                [_whole("rungs", steps) for steps in typed("rungs", data["rungs"], list)],
                [_wave(wave) for wave in typed("waves", data["waves"], list)],
            )
        except (InputError, KeyError, TypeError) as error:
            reason = f"it has no {error}" if isinstance(error, KeyError) else one_line(error)
            raise InputError(f"{file} is damaged: {reason}") from None


def _wave(data: Any) -> Wave:
    wave = typed("wave", data, dict)
    trials = [_whole("trials", number) for number in typed("trials", wave["trials"], list)]
    return Wave(_whole("rung", wave["rung"]), trials, typed("is_judged", wave["is_judged"], bool))


def _whole(name: str, value: Any) -> int:
    return parse_number(name, value, int, at_least=0)


def is_search(folder: Path) -> bool:
    return (folder / SEARCH).is_file()


def wave_folder(folder: Path, number: int) -> Path:
    return folder / "waves" / f"{number:03d}"


def check_continues(folder: Path, record: SearchRecord, options: TuneOptions) -> None:
    """Raise unless a command continues the search in a folder."""
    for f in dataclasses.fields(options):
        then, now = getattr(record.options, f.name), getattr(options, f.name)
        if f.name not in MAY_CHANGE and then != now:
            raise InputError(
                f"{folder} holds a search with {f.name}={then!r}, given {now!r}; use another "
                "folder (--out)"
            )
    if options.trials < record.options.trials:
        raise InputError(
            f"{folder} holds a search of {record.options.trials} trials, which can only grow, "
            f"given {options.trials}"
        )

"""Pages of the documentation: their blocks of code, run at small sizes, and their links."""

import dataclasses
import re
import shlex
import shutil
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial, partialmethod
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import optuna
import pytest

from dataset_files import save
from td7 import api
from td7.algorithms import ALGORITHMS, Algorithm, algorithm
from td7.algorithms.config import without_effect
from td7.option_values import parse_seeds
from td7.options import StudyOptions, TrainOptions
from td7.rollouts.registration import describe
from td7.runs.record import RunRecord
from td7.studies import run as study_run
from td7.studies.rows import STUDIES, variant
from td7.training import resolve
from td7.training.resolve import settings_of
from td7.tuning import run as tuning_run
from td7.tuning.options import TuneOptions
from td7.types import Task

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
FENCE = re.compile(
    r"^(?P<fence>`{3,})(?P<language>[^\n`]*)\n(?P<code>.*?)^(?P=fence)\s*?$", re.M | re.S
)
NOT_RUN = re.compile(r"<!-- not run: ((?:(?!-->).)+?) -->\s*$", re.DOTALL)

STEPS = 100
TRIALS = 3  # of a search
SMALL = {  # hyperparameters are at most these
    "random_steps": 40,
    **dict.fromkeys(("hidden_dim", "critic_hidden_dim", "actor_hidden_dim", "embedding_dim"), 8),
    **{"batch_size": 8, "ofe_features": 8, "quantiles": 5, "dropped_quantiles": 1},
    **{"target_every": 25, "cloning_updates": 20},
}


class Block(NamedTuple):
    """A block of code of a page."""

    page: str  # its path in the repository
    language: str
    code: str
    line: int  # the number of its first line
    not_run: str | None  # the reason why it is neither run nor parsed

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[str]:
    """Return the README and the pages of the site that have text of their own."""
    found = [path for path in DOCS.rglob("*.md") if "_build" not in path.parts]
    return ["README.md", *sorted(str(path.relative_to(ROOT)) for path in found)]


def blocks(page: str) -> list[Block]:
    text = (ROOT / page).read_text(encoding="utf-8")
    found = []
    for match in FENCE.finditer(text):
        before = text[: match.start()]
        reason = NOT_RUN.search(before.rstrip("\n") if before.endswith("-->\n") else "")
        found.append(
            Block(
                page,
                match["language"].strip(),
                match["code"],
                before.count("\n") + 2,
                " ".join(reason[1].split()) if reason else None,
            )
        )
    return found


def code_of(page: str) -> list[Block]:
    """Return the blocks of Python that are run."""
    return [b for b in blocks(page) if b.language == "python" and b.not_run is None]


def commands_of(page: str) -> Iterator[tuple[Block, list[str]]]:
    """Yield the words of every `td7 …` line, without td7; a backslash continues a line."""
    for block in blocks(page):
        if block.language != "sh" or block.not_run is not None:
            continue
        for line in block.code.replace("\\\n", " ").splitlines():
            words = shlex.split(line.removeprefix("$ "), comments=True)
            while words and re.match(r"[A-Z][A-Z0-9_]*=", words[0]):  # MUJOCO_GL=egl td7 …
                words.pop(0)
            if words and words[0] == "td7":
                yield block, words[1:]


def run_page(page: str, folder: Path, example_run: Path) -> dict[str, Any]:
    """Run the Python blocks of a page in an empty folder, at small sizes; return their names.

    A block that begins with `# name.py` is that module. Modules of `examples` beside the page are
    in the folder, and runs that the page names without training them are copies of `example_run`.
    """
    names: dict[str, Any] = {"__name__": "__main__"}
    code = code_of(page)
    text = "".join(block.code for block in code)
    made = set(re.findall(r"out=\"(runs/[\w.-]+)\"", text))
    for named in set(re.findall(r"\"(runs/[\w.-]+)", text)) - made:
        shutil.copytree(example_run, folder / named)
    for example in (ROOT / page).parent.glob("examples/*.py"):
        shutil.copy(example, folder)
    with small_sizes(), _imports_from(folder), warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* is out of date", DeprecationWarning)  # v4's tasks
        for block in code:
            if module := re.match(r"# (\w+)\.py\n", block.code):
                (folder / f"{module[1]}.py").write_text(block.code)
                names |= vars(import_module(module[1]))
            else:  # the lines of a traceback are those of the page
                lines = "\n" * (block.line - 1) + block.code
                exec(compile(lines, str(ROOT / page), "exec"), names)
    return names


@contextmanager
def _imports_from(folder: Path) -> Iterator[None]:
    """Within the block, this is the working folder; what is imported or registered ends with it."""
    registries: tuple[dict[str, Any], ...] = (gymnasium.registry, ALGORITHMS, STUDIES)
    before = [dict(registry) for registry in registries]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(folder)
        try:
            yield
        finally:
            for name, module in list(sys.modules.items()):
                file = getattr(module, "__file__", None)
                if file and Path(file).is_relative_to(folder):
                    del sys.modules[name]
            for registry, entries in zip(registries, before, strict=True):
                registry.clear()
                registry.update(entries)


@contextmanager
def small_sizes() -> Iterator[None]:
    """Within the block, td7 trains for seconds at most, whatever it is asked for.

    Datasets that do not exist are some random rows.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resolve, "train_options", partial(_train_options, resolve.train_options))
        patch.setattr(study_run, "study_options", partial(_study_options, study_run.study_options))
        patch.setattr(tuning_run, "tune_options", partial(_tune_options, tuning_run.tune_options))
        patch.setattr(optuna.Study, "optimize", partialmethod(_optimize, optuna.Study.optimize))
        patch.setattr(api, "resume", partial(_resume, api.resume))
        patch.setattr(api, "evaluate", partial(_evaluate, api.evaluate))
        yield


def _train_options(original: Any, values: Mapping[str, Any]) -> TrainOptions:
    options: TrainOptions = original(values)
    if options.dataset:
        make_dataset(Path(options.dataset), options.env)
    settings = _small_settings(options)
    steps = min(options.steps, STEPS)
    every = min(options.evaluate_every, steps // 2)
    return dataclasses.replace(
        options,
        steps=steps,
        seeds=parse_seeds(options.seeds)[:2],
        set=settings,
        evaluate_every=every,
        evaluation_episodes=1,
        metrics_every=min(options.metrics_every, 10),
        keep_policies=every if options.keep_policies else 0,
        workers="0",
        processes="1",
        engine="eager",
        device="cpu",
        quiet=True,
    )


def algorithm_of(options: TrainOptions) -> Algorithm:
    name = variant(options.variant).algorithm if options.variant else options.algorithm
    return algorithm(name or "td7")


def _small_settings(options: TrainOptions) -> dict[str, Any]:
    config = algorithm_of(options).config
    fields = config.__dataclass_fields__
    given = dict(settings_of(options.set))
    fixed = variant(options.variant).settings if options.variant else {}
    offline = {"random_steps"} if options.dataset else set()
    small = {
        field: min(int(given.get(field, most)), most)
        for field, most in SMALL.items()
        if field in fields and field not in fixed and field not in offline
    }
    useless = without_effect(config, {**fixed, **given, **small}, small)
    return {**given, **{field: value for field, value in small.items() if field not in useless}}


def _study_options(original: Any, values: Mapping[str, Any]) -> StudyOptions:
    options: StudyOptions = original(values)
    return dataclasses.replace(
        options, steps=STEPS, seeds=(0,), evaluate_every=STEPS, evaluation_episodes=1, quiet=True
    )


def _tune_options(original: Any, values: Mapping[str, Any]) -> TuneOptions:
    options: TuneOptions = original(values)
    small = _small_settings(options.run_options)
    return dataclasses.replace(
        options,
        steps=STEPS,
        seeds=parse_seeds(options.seeds)[:1],
        trials=min(options.trials, TRIALS),
        set={name: value for name, value in small.items() if name not in dict(options.search)},
        evaluate_every=STEPS // 2,
        evaluation_episodes=1,
        workers="0",
        processes="1",
        engine="eager",
        device="cpu",
        quiet=True,
    )


def _optimize(study: Any, original: Any, objective: Any, *, n_trials: int) -> None:
    original(study, objective, n_trials=min(n_trials, TRIALS))


def _resume(original: Any, path: Any, *, steps: int | None = None, **options: Any) -> Any:
    if steps is not None:
        steps = RunRecord.read(Path(path)).steps + 10
    return original(path, steps=steps, **{**options, "quiet": True})


def _evaluate(original: Any, path: Any, *, episodes: int = 10, **options: Any) -> Any:
    return original(path, episodes=min(episodes, 2), **options)


def make_dataset(path: Path, env: str) -> None:
    """Write random rows of a D4RL file's task, unless there is a file."""
    if path.exists() or path.suffix != ".hdf5":
        return
    family = path.name.partition("_")[0].capitalize()
    task = env or {"Halfcheetah": "HalfCheetah-v4", "Walker2d": "Walker2d-v4"}.get(
        family, f"{family}-v4"
    )
    spec = describe(Task(task))
    random = np.random.default_rng(0)
    rows = 400
    path.parent.mkdir(parents=True, exist_ok=True)
    save(
        path,
        {
            "observations": random.normal(size=(rows, spec.state_dim)).astype(np.float32),
            "next_observations": random.normal(size=(rows, spec.state_dim)).astype(np.float32),
            "actions": random.uniform(-1, 1, (rows, spec.action_dim)).astype(np.float32),
            "rewards": random.normal(size=rows).astype(np.float32),
            "terminals": np.zeros(rows, bool),
            "timeouts": np.arange(rows) % 100 == 99,
        },
    )


# -- links ---------------------------------------------------------------------------------------


class Link(NamedTuple):
    file: Path
    target: str  # a path, relative to the file's folder
    anchor: str


def links(file: Path) -> Iterator[Link]:
    """Yield the relative links and pictures of a Markdown file or a notebook."""
    text = FENCE.sub("", file.read_text(encoding="utf-8"))
    text = re.sub(r"`[^`\n]*`", "", text)
    found = re.findall(r"\]\(<?([^)\s>]+)>?(?: \"[^\"]*\")?\)", text)
    found += re.findall(r"(?:src|srcset|href)=\"([^\"]+)\"", text)
    found += re.findall(r"^\[[^\]]+\]:\s+(\S+)", text, re.MULTILINE)
    for target in found:
        if re.match(r"[a-z]+:", target) or "\\" in target:
            continue
        path, _, anchor = target.partition("#")
        yield Link(file, path, anchor)


def anchors(file: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and MyST make them."""
    text = FENCE.sub("", file.read_text(encoding="utf-8"))
    made = set()
    for heading in re.findall(r"^#+ +(.+?) *$", text, re.MULTILINE):
        words = re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower())
        made.add(words.replace(" ", "-"))
    return made | set(re.findall(r"^\(([\w-]+)\)=$", text, re.MULTILINE))


def documents() -> list[Path]:
    """Return all Markdown files and notebooks of the repository that are read by people."""
    folders: Sequence[Path] = (ROOT, DOCS, ROOT / "results", ROOT / "policies", ROOT / ".github")
    found: Iterable[Path] = (
        path
        for folder in folders
        for pattern in ("*.md", "*.ipynb")
        for path in (folder.glob(pattern) if folder == ROOT else folder.rglob(pattern))
    )
    return sorted(path for path in found if "_build" not in path.parts)

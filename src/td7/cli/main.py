"""The command line: words → the Python interface. Bad words get one line and exit status 2."""

import argparse
import dataclasses
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from td7 import __version__
from td7.errors import InputError, RunError, UnknownTask, one_line, unknown

if TYPE_CHECKING:
    from rich.console import Console

    from td7.studies.run import Plan


LOADS_PYTORCH = ("train", "resume", "bench")  # commands; it takes a second or more


class Parser(argparse.ArgumentParser):
    """argparse with one-line errors: what was given, what is allowed, the nearest match."""

    def __init__(self, **options: Any) -> None:
        super().__init__(
            **options,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message} (`{self.prog} --help` tells more)")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; gives back the exit status."""
    # PyTorch's threads spin while they wait for each other. On a core that another program uses
    # they spin for ever: updates then take forty times as long, and ten times less so with this.
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    try:
        return _run(sys.argv[1:] if argv is None else list(argv))
    except InputError as error:
        return _failed(error, 2)
    except RunError as error:
        return _failed(error, 1)
    except KeyboardInterrupt:
        return _failed("interrupted", 130)
    except BrokenPipeError:  # `td7 list tasks | head`
        # Python flushes once more at its end, and would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (OSError, MemoryError, RuntimeError) as error:  # a full disk, say
        return _failed(_of_the_machine(error), 1)


_NO_MEMORY = "out of memory|allocate memory"  # what PyTorch says of a GPU, and of a CPU


def _of_the_machine(error: Exception) -> str:
    """What the machine lacks, in one line; raises what has another cause."""
    if isinstance(error, OSError):
        return str(error)
    if isinstance(error, RuntimeError) and not re.search(_NO_MEMORY, str(error)):
        raise error
    less = "fewer seeds at once, smaller networks or a smaller replay take less"
    if "CUDA" in str(error):
        less += ", and --replay-device cpu has a GPU's replay in the host's memory"
    return f"out of memory ({one_line(error)[:120]}); {less}"


@contextmanager
def _ended_by_interrupts() -> Iterator[None]:
    """Ctrl-C ends the process at once: libraries that are loading make anything of it.

    Nothing has begun yet, so nothing is lost.
    """
    before = signal.getsignal(signal.SIGINT)
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or before is not signal.default_int_handler:  # a script's own, or ignored
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _run(words: Sequence[str]) -> int:
    # A task in a module beside the user is found, as with `python -m td7`.
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))
    with _ended_by_interrupts():
        parser, commands = _parser(words)
        if words and words[0] in LOADS_PYTORCH:
            import_module("td7.training.loop")
    if not words:
        parser.print_help()
        return 0
    if not words[0].startswith("-") and words[0] not in commands:
        raise unknown("command", words[0], commands)
    try:
        options, rest = parser.parse_known_args(words)
    except SystemExit:  # --help or --version, which has been answered
        return 0
    own = getattr(options, "own_parser", commands.get(words[0], parser))
    if rest and rest[0].startswith("-"):
        name = rest[0].partition("=")[0]
        allowed, fixed = _option_names(own), getattr(options, "fixed", ())
        field = name.removeprefix("--").replace("-", "_")
        is_hyperparameter = "--set" in allowed and field in _hyperparameters(words)
        if name in fixed or (fixed and is_hyperparameter):
            raise InputError(f"{name}: {_KEEPS_SETTINGS}")
        if is_hyperparameter:
            raise InputError(f"{name} is a hyperparameter: --set {field}=…")
        raise unknown("option", name, sorted(allowed))
    if rest:
        raise InputError(f"{own.prog} does not know what to do with {rest[0]!r}")
    if not hasattr(options, "command"):
        raise unknown("command", words[0], commands)
    status = _carried_out(options)
    sys.stdout.flush()
    return status


def _carried_out(options: argparse.Namespace) -> int:
    """The command's exit status; the modules that --import names come before it."""
    command: Callable[[argparse.Namespace], int] = options.command
    if not hasattr(options, "modules"):
        return command(options)
    from td7.processes import EndOfScript, reading_script
    from td7.rollouts.environment import register_from

    for module in options.modules:
        try:
            with reading_script():
                register_from(module, "--import")
        except EndOfScript:
            problem = "uses td7 when it is imported: put that under `if __name__ == '__main__':`"
            raise InputError(f"--import: module {module!r} {problem}") from None
    try:
        return command(options)
    except UnknownTask as error:  # its name is the run's, so MODULE:ID is no help
        error.remedy = "one's own: --import MODULE, which registers it"
        raise


def _console() -> "Console":
    """Standard output; where it is no terminal, wide enough for every table."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 140)


def _failed(message: object, status: int) -> int:
    print(f"td7: {message}", file=sys.stderr)
    return status


def _option_names(parser: argparse.ArgumentParser) -> list[str]:
    return [name for name in parser._option_string_actions if name.startswith("--")]


def _parser(words: Sequence[str]) -> tuple[Parser, dict[str, argparse.ArgumentParser]]:
    """All commands, and the options of the one chosen: those of `train` take seconds to import."""
    chosen = words[0] if words else ""
    parser = Parser(
        prog="td7",
        description="TD7 and SALE, stacked over seeds: train, stop, resume exactly, evaluate.",
        epilog="`td7 COMMAND --help` has every option, with defaults and units.",
    )
    parser.add_argument("--version", action="version", version=f"td7 {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", parser_class=Parser)

    for name, (run, add, text) in _COMMANDS.items():
        sub = commands.add_parser(name, help=text, description=text)
        sub.set_defaults(command=run)
        if name == chosen:
            add(sub, words[1:])

    return parser, commands.choices  # type: ignore[return-value]  # name: parser


def _add_train(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    from td7.algorithms import ALGORITHMS
    from td7.api import TrainOptions

    chosen = _chosen(words)  # a wrong one is told before anything else, help included
    others = ", ".join(f"`td7 train {name} --help`" for name in ALGORITHMS if name != chosen)
    parser.epilog = f"{_hyperparameter_help(chosen)}\n\nof the others: {others}"

    parser.add_argument(
        "algorithm", metavar="ALGORITHM", nargs="?", default="", help="default: td7"
    )
    names = [f.name for f in dataclasses.fields(TrainOptions)]
    _add_from_options(parser, TrainOptions, [name for name in names if name != "algorithm"])


def _chosen(words: Sequence[str]) -> str:
    """The algorithm that the words after `train` name."""
    from td7.algorithms import ALGORITHMS, algorithm

    if words and not words[0].startswith("-"):
        return algorithm(words[0]).name
    return next((word for word in words if word in ALGORITHMS), "td7")


def _hyperparameters(words: Sequence[str]) -> set[str]:
    """Those of the algorithm that a command's words choose; all, where a row or a run does."""
    from td7.algorithms import ALGORITHMS

    is_chosen = words[0] == "train" and not any(word.startswith("--variant") for word in words)
    names = [_chosen(words[1:])] if is_chosen else ALGORITHMS
    return {f.name for name in names for f in dataclasses.fields(ALGORITHMS[name].config)}


_KEEPS_SETTINGS = (
    "a resumed run keeps its settings, only --steps may grow; `td7 train` starts one with others"
)


def _add_resume(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    from td7.api import TrainOptions

    del words
    parser.epilog = _KEEPS_SETTINGS
    parser.add_argument("dir", metavar="DIR", help="the run folder")
    parser.add_argument(
        "--steps", metavar="N", help="extend the run to so many steps (or updates) a seed"
    )
    parser.add_argument("--dataset", metavar="DATASET", help="where its data are now, if moved")
    _add_values(
        parser, "--set", "hyperparameters to make sure of: if the run has others, it is not resumed"
    )
    _add_import(parser)
    how = ("workers", "snapshot_every", "quiet")
    _add_from_options(parser, TrainOptions, how, default="as before")
    names = {f"--{f.name.replace('_', '-')}" for f in dataclasses.fields(TrainOptions)}
    parser.set_defaults(fixed=names.difference(_option_names(parser)))


def _add_evaluate(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    del words
    parser.add_argument("dir", metavar="DIR", help="the run folder")
    parser.add_argument("--seed", metavar="N", help="only this seed's policy (default: all)")
    parser.add_argument(
        "--episodes", metavar="N", default="10", help="episodes a seed (default: 10)"
    )
    parser.add_argument(
        "--video", metavar="FILE", help="film the first episode, as .mp4 or .gif (extra `video`)"
    )
    _add_import(parser)


def _add_export(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    del words
    parser.epilog = (
        "The file takes observations, float32 [batch, …], and gives the task's own actions "
        "[batch, …], within its bounds: what `td7.load(DIR).predict` does. It is run once, "
        "beside the policy, before it is written."
    )
    parser.add_argument("dir", metavar="DIR", help="the run folder, or one of its policies/N")
    parser.add_argument("--seed", metavar="N", help="which seed's (default: the only one)")
    parser.add_argument("--format", default="onnx", help="onnx needs the onnx package")
    parser.add_argument("--out", metavar="FILE", help="default: DIR/policy/seed-N.onnx")


def _add_list(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    del words
    parser.add_argument("what", metavar="algorithms|studies|tasks")
    parser.add_argument("name", metavar="NAME", nargs="?", help="this algorithm or study alone")


def _add_bench(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    del words
    for flag, default, text in (
        ("--algorithms", "td7", "as A,B; `td7 list algorithms`"),
        ("--seeds", "1,10", "numbers of seeds, side by side"),
        (
            "--engines",
            "auto",
            "of eager, compiled, graph (auto: eager and the fast one); processes: compiled, seeds "
            "in processes of their own; sampling: LAP's part alone",
        ),
        ("--rows", "100_000", "replay sizes"),
        ("--env", "HalfCheetah-v4", "the tasks, as A,B, whose sizes are taken"),
        ("--steps", "0", "train for so many steps, too, with everything in it, and time that"),
        ("--device", "auto", "of cpu, cuda, as A,B (auto: cuda if there is one)"),
        ("--seconds", "10", "time for each candidate; all take turns"),
        ("--out", "results/bench", "folder for the figures, as JSON"),
    ):
        shown = f"{text} (default: {default})"
        parser.add_argument(flag, metavar=flag[2:].upper(), default=default, help=shown)


def _add_study(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    from td7.studies.rows import STUDIES
    from td7.studies.run import StudyOptions

    del words
    parser.add_argument("name", metavar="NAME", help=", ".join(STUDIES))
    parser.add_argument(
        "--rows", metavar="LABEL", nargs="+", default=[], help="some rows; `td7 list studies NAME`"
    )
    parser.add_argument("--dry-run", action="store_true", help="print the plan and stop")
    names = [f.name for f in dataclasses.fields(StudyOptions)]
    own = [name for name in names if name not in ("name", "rows")]
    _add_from_options(parser, StudyOptions, own)


def _add_report(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    del words
    parser.add_argument(
        "dirs", metavar="DIR", nargs="+", help="run folders, study folders, folders of either"
    )
    parser.add_argument(
        "--out", metavar="DIR", default="report", help="folder to write (default: report)"
    )
    parser.add_argument("--no-figures", action="store_true", help="tables and the page only")
    parser.add_argument(
        "--markdown",
        metavar="FILE",
        nargs="+",
        default=[],
        help="write all tables there, too, as one Markdown page; in a file that has places marked "
        "<!-- td7 report: TABLE --> (or: TABLE with caption) … <!-- td7 report -->, only those "
        "tables",
    )


def _add_dataset(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    from td7.datasets.download import DATASETS, URL_VARIABLE

    actions = parser.add_subparsers(
        title="actions", metavar="ACTION", parser_class=Parser, dest="action", required=True
    )
    info = actions.add_parser("info", help="what is in a dataset")
    info.add_argument("path", metavar="DATASET", help="a D4RL file, a Minari id or folder")
    info.add_argument("--env", metavar="ENV", help="its task, if its actions are not in [-1, 1]")
    info.add_argument("--json", action="store_true", help="as JSON")

    fetch = actions.add_parser(
        "fetch",
        help="download a D4RL file and check it",
        epilog=f"datasets: {', '.join(DATASETS)}",
    )
    fetch.add_argument("id", metavar="ID", help="e.g. hopper-medium-v2")
    fetch.add_argument(
        "--out", metavar="DIR", default="datasets", help="folder (default: datasets)"
    )
    fetch.add_argument(
        "--url", metavar="URL", help=f"address of the folder with the files (or {URL_VARIABLE})"
    )
    fetch.add_argument("--replace", action="store_true", help="a file that is not the dataset's")

    record = actions.add_parser("record", help="make a dataset of one's own from a run")
    record.add_argument("--run", metavar="DIR", required=True, help="the run folder")
    record.add_argument(
        "--kind",
        metavar="KIND",
        required=True,
        help="expert: what its last policy does; medium: what a kept one does that is about a "
        "third as good (needs --keep-policies); medium-expert: half of each; replay: what the run "
        "did",
    )
    record.add_argument("--rows", metavar="N", required=True, help="transitions")
    record.add_argument("--seed", metavar="N", help="of the run (default: its first)")
    record.add_argument("--out", metavar="FILE", help="default: TASK-KIND.hdf5")
    record.add_argument(
        "--workers", metavar="N", default="0", help="processes that play episodes (default: 0)"
    )
    _add_import(record)
    if words and not words[0].startswith("-") and words[0] not in actions.choices:
        raise unknown("action", words[0], actions.choices)
    for action in actions.choices.values():
        action.set_defaults(own_parser=action)


def _add_from_options(
    parser: argparse.ArgumentParser,
    options: type,
    names: Sequence[str],
    default: str | None = None,
) -> None:
    """Options from these fields of a dataclass of them, in their groups.

    `default`: what becomes of those that are not given, if not the field's own; they are None.
    """
    fields = [f for f in dataclasses.fields(options) if f.name in names]
    for title, members in groupby(fields, key=lambda f: f.metadata["group"]):
        group = parser.add_argument_group(title)
        for f in members:
            flag = f"--{f.name.replace('_', '-')}"
            doc = f.metadata["doc"].replace("%", "%%")
            if f.type is bool:
                group.add_argument(flag, action="store_true", help=doc)
            elif f.default == ():
                _add_values(group, flag, doc)
            else:
                value = f.default if default is None else None
                told = _plain(f.default) if default is None else default
                shown = f" (default: {told})" if told else ""
                metavar = "N" if f.type in (int, float) else f.name.upper()
                group.add_argument(flag, metavar=metavar, default=value, help=doc + shown)


def _add_import(parser: argparse.ArgumentParser) -> None:
    """For commands that make a run's task: see `_carried_out`."""
    parser.add_argument(
        "--import",
        metavar="MODULE",
        dest="modules",
        action="append",
        default=[],
        help="a module that registers the run's task, if its name has none; may be given again",
    )


def _add_values(parser: argparse._ActionsContainer, flag: str, doc: str) -> None:
    """An option with any number of NAME=VALUE, which may be given again."""
    parser.add_argument(
        flag, metavar="NAME=VALUE", nargs="+", action="extend", default=[], help=doc
    )


def _plain(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(value)
    return f"{value:_}" if isinstance(value, int) and not isinstance(value, bool) else f"{value}"


def _hyperparameter_help(name: str) -> str:
    """Every hyperparameter of an algorithm, grouped by where the idea comes from."""
    from td7.algorithms import ALGORITHMS
    from td7.algorithms.learner import ONLINE_GROUPS
    from td7.configs import described

    chosen = ALGORITHMS[name]
    lines = [f"hyperparameters of {name}, for --set:"]
    for group, fields in described(chosen.config).items():
        if group in ONLINE_GROUPS and not chosen.online:
            continue  # they are refused
        lines.append(f"  {group}")
        lines += [f"    {f + '=' + _plain(default):36}{doc}" for f, default, doc in fields]
    return "\n".join(lines)


def _train(options: argparse.Namespace) -> int:
    from td7.api import start, train_options

    values = {name: value for name, value in vars(options).items() if name != "command"}
    chosen = train_options(values)
    return _finish_training(lambda: start(chosen), quiet=chosen.quiet)


def _resume(options: argparse.Namespace) -> int:
    from td7.api import resume

    return _finish_training(
        lambda: resume(
            options.dir,
            steps=options.steps,
            dataset=options.dataset,
            set=options.set,
            workers=options.workers,
            snapshot_every=options.snapshot_every,
            quiet=options.quiet,
        ),
        quiet=options.quiet,
    )


def _finish_training(run_it: Callable[[], Any], *, quiet: bool) -> int:
    """Trains, then shows what came of it: a table, a picture, where the files are."""
    from td7.errors import Stopped
    from td7.report.figures import learning_curve
    from td7.report.read import origin
    from td7.report.write import summary
    from td7.rollouts.environment import can_draw
    from td7.types import Task

    try:
        run = run_it()
    except Stopped as stop:
        return _failed(f"{stop}; `td7 resume {stop.path}` goes on exactly", 128 + stop.signum)
    picture = run.path / "learning_curve.png"
    task, given = run.config["task"]["id"], run.config["dataset"]
    where = Path(given["source"]).stem if given else task
    title = f"{run.config['algorithm']} on {where}"
    counted = "updates" if given else "environment steps"
    learning_curve(run.evaluations, title, counted).savefig(picture, dpi=150)
    if not quiet:
        console = _console()
        names = {"scored": task, "data": origin(given)[1], "step": "update"} if given else {}
        console.print(summary(run.evaluations, **names))
        shown = {"learning curve": str(picture), "all files": str(run.path)}
        if can_draw(Task(task, run.config["task"]["kwargs"])):
            shown["watch it"] = f"td7 evaluate {run.path} --video {run.path / 'video.mp4'}"
        for label, path in shown.items():
            console.print(f"{label:15} {path}", highlight=False, soft_wrap=True, markup=False)
    return 0


def _evaluate(options: argparse.Namespace) -> int:
    from td7.api import evaluate
    from td7.configs import parse
    from td7.report.read import origin
    from td7.report.write import returns
    from td7.runs.folder import folder_of, read_config

    episodes = evaluate(
        options.dir,
        seed=None if options.seed is None else parse("seed", options.seed, int),
        episodes=parse("episodes", options.episodes, int),
        video=options.video,
        say=lambda text: print(text, file=sys.stderr, flush=True),
    )
    given = read_config(folder_of(Path(options.dir))[0]).get("dataset")
    _console().print(returns(episodes, origin(given)[1] if given else ""))
    if options.video:
        print(f"video: {options.video}")
    return 0


def _export(options: argparse.Namespace) -> int:
    from td7.configs import parse
    from td7.runs.export import export

    seed = None if options.seed is None else parse("seed", options.seed, int)
    print(export(options.dir, options.out, seed=seed, format=options.format))
    return 0


def _dataset(options: argparse.Namespace) -> int:
    return {"info": _dataset_info, "fetch": _dataset_fetch, "record": _dataset_record}[
        options.action
    ](options)


def _dataset_info(options: argparse.Namespace) -> int:
    import json

    from td7.api import read_dataset
    from td7.datasets import dataset as datasets
    from td7.report.write import dataset_table
    from td7.types import Task

    if options.env:
        dataset = read_dataset(options.path, Task(options.env))
        dataset = dataclasses.replace(dataset, task_id=dataset.task_id or options.env)
    else:
        dataset = datasets.read(options.path)
    found = datasets.summary(dataset)
    if options.json:
        print(json.dumps(found, indent=2))
    else:
        _console().print(dataset_table(found))
        for warning in found["warnings"]:
            print(f"warning: {warning}")
    return 0


def _dataset_fetch(options: argparse.Namespace) -> int:
    from td7.datasets.download import fetch
    from td7.training.progress import amounts

    with amounts(options.id, "bytes") as report:
        path = fetch(
            options.id,
            Path(options.out),
            report=report,
            say=lambda text: print(text, file=sys.stderr, flush=True),
            base_url=options.url,
            replace=options.replace,
        )
    print(path)
    return 0


def _dataset_record(options: argparse.Namespace) -> int:
    from td7.configs import number, parse
    from td7.datasets.record import origin, record
    from td7.training.hardware import MOST_WORKERS
    from td7.training.progress import amounts

    run = Path(options.run)
    task = origin(run).task_id.rpartition(":")[2]
    out = Path(options.out or f"{task}-{options.kind}.hdf5")
    workers = number("workers", options.workers, int, at_least=0, at_most=MOST_WORKERS)
    with amounts(out.name, "rows") as report:
        record(
            run,
            options.kind,
            parse("rows", options.rows, int),
            out,
            seed=None if options.seed is None else parse("seed", options.seed, int),
            workers=workers,
            report=report,
            say=lambda text: print(text, file=sys.stderr, flush=True),
        )
    print(out)
    return 0


def _study(options: argparse.Namespace) -> int:
    from td7.errors import Stopped
    from td7.studies.run import carry_out, planned, study_options

    values = {n: v for n, v in vars(options).items() if n not in ("command", "dry_run")}
    plan = planned(study_options(values))
    if options.dry_run or not options.quiet:
        _show_plan(plan)
    if options.dry_run:
        return 0
    try:
        standing = carry_out(plan)
    except Stopped as stop:
        return _failed(f"{stop}; the same command goes on", 128 + stop.signum)
    out = plan.options.folder
    for name, error in standing.failed.items():
        print(f"failed: {name}: {error} ({out / 'logs' / name}.log)", file=sys.stderr)
    print(f"{len(standing.done)} of {len(standing.runs)} runs are done: {out}")
    return 1 if standing.failed else 0


def _show_plan(plan: "Plan") -> None:
    from td7.report.write import plan_table
    from td7.training.progress import duration

    console = _console()
    console.print(plan_table(plan.states))
    if len(plan.done) == len(plan.states):
        print(f"all {len(plan.states)} runs are done")
        return
    console.print(
        f"{len(plan.done)} of {len(plan.states)} runs are done; the others take about "
        f"{duration(plan.seconds)} on {plan.device} "
        f"(by {'the runs that are done' if plan.done else 'what was measured elsewhere'})",
        highlight=False,
    )
    for line in plan.missing:
        print(line)


def _report(options: argparse.Namespace) -> int:
    from td7.report import write as report

    found = report.read([Path(folder) for folder in options.dirs])
    out = Path(options.out)
    written = report.write(found, out, with_figures=not options.no_figures)
    for file in map(Path, options.markdown):
        try:
            before = file.read_text(encoding="utf-8") if file.exists() else ""
            file.write_text(found.within(before), encoding="utf-8")
        except (OSError, UnicodeError, InputError) as error:
            raise InputError(f"cannot write to {file}: {one_line(error)}") from None
    print(found.summary)
    for note in found.findings.notes:
        print(f"note: {note}", file=sys.stderr)
    print(f"{len(written)} files, among them {out / 'report.html'}")
    return 0


def _bench(options: argparse.Namespace) -> int:
    from td7.bench.run import measure
    from td7.configs import number
    from td7.errors import Stopped

    try:
        file = measure(
            options.algorithms.split(","),
            options.env.split(","),
            options.device.split(","),
            () if options.engines == "auto" else options.engines.split(","),
            seeds=[number("seeds", word, int, at_least=1) for word in options.seeds.split(",")],
            rows=[number("rows", word, int, at_least=1) for word in options.rows.split(",")],
            seconds=number("seconds", options.seconds, float, above=0),
            steps=number("steps", options.steps, int, at_least=0),
            out=Path(options.out),
            say=lambda text: print(text, file=sys.stderr, flush=True),
            show=_console().print,
        )
    except Stopped as stop:
        return _failed(f"{stop}; what was measured is in {stop.path}", 128 + stop.signum)
    print(file)
    return 0


def _list(options: argparse.Namespace) -> int:
    listings: dict[str, Callable[[], None]] = {
        "algorithms": lambda: _list_algorithms(options.name),
        "studies": lambda: _list_studies(options.name),
        "tasks": _list_tasks,
    }
    if options.what not in listings:
        raise unknown("list", options.what, listings)
    if options.name and options.what == "tasks":
        raise InputError(f"td7 list {options.what} does not know what to do with {options.name!r}")
    listings[options.what]()
    return 0


def _list_studies(name: str | None) -> None:
    from td7.datasets.download import DATASETS
    from td7.studies.rows import STUDIES, study

    if name is None:
        for s in STUDIES.values():
            print(f"{s.name:16}{len(s.rows):3} rows   {s.title} ({s.where})")
        print("\n`td7 list studies NAME` shows the rows of one.")
        return
    chosen = study(name)
    where = ", ".join(chosen.datasets or chosen.tasks)
    print(f"{chosen.title} ({chosen.where}): {chosen.steps:,} {chosen.counted} of {where}")
    labels, names = (
        2 + max(len(getattr(row, word)) for row in chosen.rows.values())
        for word in ("label", "algorithm")
    )
    group = ""
    for row in chosen.rows.values():
        if row.group != group:
            group = row.group
            print(f"\n{group}")
        changes = " ".join(f"{k}={_plain(v)}" for k, v in row.changes.items()) or "nothing"
        print(f"  {row.label:{labels}}{row.algorithm:{names}}{row.summary}")
        print(f"  {'':{labels + names}}changes {changes}")
    example = f"--env {chosen.tasks[0]}"
    if chosen.datasets:
        first = chosen.datasets[0]
        example = f"--dataset datasets/{DATASETS[first].file}"
        print(f"\nGet a dataset: td7 dataset fetch {first}", end="")
    print(f"\nTrain one: td7 train --variant {chosen.names()[1]!r} {example}")


def _list_algorithms(name: str | None) -> None:
    from td7.algorithms import ALGORITHMS, algorithm

    chosen = list(ALGORITHMS.values()) if name is None else [algorithm(name)]
    for a in chosen:
        print(f"{a.name:12}{a.summary}")
    if name is None:
        print("\n`td7 list algorithms NAME` shows the hyperparameters of one.")
    else:
        print(f"\n{_hyperparameter_help(chosen[0].name)}")


def _list_tasks() -> None:
    from td7.rollouts.environment import PAPER_TASKS, tasks

    for task in tasks():
        print(f"{task:28}{'in the paper' if task in PAPER_TASKS else ''}".rstrip())
    print("and any Gymnasium task with a Box state and a Box action, as Id-v0 or module:Id-v0")


_COMMANDS: dict[
    str,
    tuple[Callable[[argparse.Namespace], int], Callable[..., None], str],
] = {
    "train": (_train, _add_train, "train an algorithm on a task, all seeds side by side"),
    "resume": (_resume, _add_resume, "go on, exactly, with a run that was stopped"),
    "evaluate": (_evaluate, _add_evaluate, "play a trained policy and tell its returns"),
    "export": (_export, _add_export, "a trained policy as a file for other programs"),
    "list": (
        _list,
        _add_list,
        "what there is: algorithms, hyperparameters, studies, tasks",
    ),
    "study": (_study, _add_study, "all runs of a table of the paper; given again, it goes on"),
    "report": (_report, _add_report, "tables, figures and a page of runs, beside the paper's"),
    "dataset": (_dataset, _add_dataset, "look at, fetch or record data to learn from"),
    "bench": (_bench, _add_bench, "measure updates and steps a second, beside other programs"),
}

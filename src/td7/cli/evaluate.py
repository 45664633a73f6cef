"""`td7 evaluate`."""

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from td7.cli.console import new_console, print_json
from td7.cli.parser import Parser, add_json, add_trust
from td7.errors import Option, say

if TYPE_CHECKING:
    import pandas as pd

HELP = "play trained policies and show their returns"


def add_options(parser: Parser, words: Sequence[str]) -> None:
    del words
    parser.add_argument("dir", metavar="DIR", help="run folder, or one of its policies/STEP")
    parser.add_argument(
        "--seed", metavar="N", help="play only policies of this seed (default: all)"
    )
    parser.add_argument(
        "--member",
        metavar="N",
        help="play only this member's policy, of a run whose hyperparameters vary (default: all)",
    )
    parser.add_argument(
        "--episodes", metavar="N", default="10", help="episodes per seed (default: 10)"
    )
    parser.takes("--env-kwargs", "env_kwargs")
    parser.add_argument(
        "--env-kwargs",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="keyword arguments of the task to replace, for robustness checks",
    )
    parser.add_argument(
        "--fresh-seeds",
        action="store_true",
        help="begin episodes from reset seeds that the run has not used",
    )
    parser.add_argument(
        "--video",
        metavar="FILE",
        help="record a video of the first episode, as .mp4, .gif or .webp (extra `video`)",
    )
    parser.add_argument(
        "--video-seconds",
        metavar="S",
        help="length of the video at most (default: the whole episode)",
    )
    parser.add_argument(
        "--video-width", metavar="PIXELS", help="width of its frames (default: as the task draws)"
    )
    add_json(parser)
    add_trust(parser)


def run(options: Namespace) -> int:
    from td7.api import evaluate
    from td7.cli.terminal import return_table
    from td7.configs import parse
    from td7.reports.result import data_origin
    from td7.runs.record import RunRecord, run_and_step

    episodes = evaluate(
        options.dir,
        seed=options.seed,
        member=options.member,
        episodes=parse(Option("episodes"), options.episodes, int),
        env_kwargs=options.env_kwargs,
        fresh_seeds=options.fresh_seeds,
        video=options.video,
        video_seconds=options.video_seconds,
        video_width=options.video_width,
        say=say,
        trust=options.trust,
    )
    if options.json:
        print_json(_as_data(options, episodes))
        return 0
    dataset = RunRecord.read(run_and_step(Path(options.dir))[0]).dataset
    new_console().print(return_table(episodes, data_origin(dataset)[1] if dataset else ""))
    if options.video:
        print(f"video: {options.video}")
    return 0


def _as_data(options: Namespace, episodes: "pd.DataFrame") -> dict[str, Any]:
    """Return what --json prints; the mean is over seeds, or over members."""
    from td7.reports.result import member_returns

    members = member_returns(episodes)
    return {
        "path": options.dir,
        **{name: episodes.attrs[name] for name in ("env_kwargs", "fresh_seeds")},
        "mean": float(members["mean"].mean()),
        f"{members.columns[0]}s": members.to_dict("records"),
        "episodes": episodes.to_dict("records"),
        "video": options.video,
    }

"""`td7 export`."""

from argparse import Namespace
from collections.abc import Sequence

from td7.cli.parser import Parser
from td7.errors import say

HELP = "write a trained policy to a file for other programs, or to a folder to share"


def add_options(parser: Parser, words: Sequence[str]) -> None:
    del words
    parser.epilog = (
        "onnx: the network maps observations, float32 [batch, …], to the task's own actions\n"
        "[batch, …], within their bounds, as `td7.load(DIR).predict` does. Before the file is\n"
        "written, its outputs are compared with those of the policy. It needs the onnx package.\n"
        "folder: a small run folder with this policy and its evaluations alone, which\n"
        "`td7 evaluate` and `td7.load` take like the run itself."
    )
    parser.add_argument("dir", metavar="DIR", help="run folder, or one of its policies/STEP")
    parser.add_argument(
        "--seed", metavar="N", help="seed of the policy (default: the run's only one)"
    )
    parser.add_argument(
        "--member", metavar="N", help="number of the policy, of a run whose hyperparameters vary"
    )
    parser.add_argument("--format", default="onnx", help="onnx or folder (default: onnx)")
    parser.add_argument(
        "--out",
        metavar="PATH",
        help="default: DIR/policy/seed-N.onnx, or the folder DIR-seed-N (or member-N)",
    )


def run(options: Namespace) -> int:
    from td7.runs.export import export

    which = {"seed": options.seed, "member": options.member}
    print(export(options.dir, options.out, **which, format=options.format, say=say))
    return 0

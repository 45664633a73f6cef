"""`td7 export`."""

import argparse
from collections.abc import Sequence


def add_options(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
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


def run(options: argparse.Namespace) -> int:
    from td7.configs import parse
    from td7.runs.export import export

    seed = None if options.seed is None else parse("seed", options.seed, int)
    print(export(options.dir, options.out, seed=seed, format=options.format))
    return 0

"""Export a policy as an ONNX file, for controllers without Python: observations in, actions out.

`single_policy` writes the other format, a run folder of one policy.

The network is data, so its graph is built layer by layer, as `numpy_actor.Actor` runs it. Before
the file is written, ONNX's reference evaluator compares it with `policy.predict`.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from td7 import __version__
from td7.errors import InputError, RunError, needs_extra, unknown
from td7.files import write, writing_to
from td7.networks.onnx import IR, OPSET, Graph, add_network
from td7.rollouts.environment import ActionMap
from td7.runs import single_policy
from td7.runs.members import Members
from td7.runs.policies import Policy, load, note_unverified, policy_folder
from td7.runs.policy_files import read_description
from td7.types import AnyPath

TOLERANCE = 1e-4  # of an action's range: float32 products are summed in another order


def export(
    path: AnyPath,
    out: AnyPath | None = None,
    *,
    seed: int | None = None,
    member: int | None = None,
    format: str = "onnx",
    say: Callable[[str], None] | None = None,
) -> Path:
    """Export the policy of a run folder, or of its policy/ or policies/STEP folder.

    If hyperparameters vary, `member` is the policy's number. `format` is "onnx", a file, or
    "folder", a small run folder with this policy alone, in which nothing varies. `out` defaults to
    seed-N.onnx (member-N.onnx) in the policy's folder, or to RUN-seed-N (RUN-member-N) beside the
    run. Return the path of what was written. `say` receives a note if the policy has no checksum.
    """
    if format not in FORMATS:
        raise unknown("format", format, FORMATS)
    policy = load(path, seed, member=member)
    if say is not None:
        note_unverified(path, [policy], say)
    members = Members.from_json(read_description(policy_folder(path)))
    only = members.take([members.ids.index(members.chosen(path, seed, member))])
    return FORMATS[format](Path(path), policy, only, None if out is None else Path(out))


def _to_onnx(path: Path, policy: Policy, member: Members, out: Path | None) -> Path:
    folder = policy_folder(path)
    (id,) = member.ids
    file = out or folder / f"{member.kind}-{id}.onnx"
    if file.suffix != ".onnx":
        raise InputError(f"a file of format onnx ends in .onnx, given {str(file)!r}")
    if not file.parent.is_dir():
        raise InputError(f"{file.parent} is not a folder")
    algorithm = str(read_description(folder).get("algorithm"))
    values = {
        name: str(value) for name, value in {"seed": member.seeds[0], **member.values(0)}.items()
    }
    number = {"member": str(id)} if member.numbers else {}
    write_onnx(policy, file, {"algorithm": algorithm, **number, **values})
    return file


def write_onnx(policy: Policy, path: Path, metadata: Mapping[str, str]) -> None:
    """Write a model from observation [batch, ...], float32, to action [batch, ...], the task's.

    `metadata` goes into the file, together with the task's id and, if its observation is a
    dictionary or a tuple, the entries that follow each other in the flat one.
    """
    try:
        import onnx
        from onnx import helper
        from onnx.reference import ReferenceEvaluator
    except ImportError:
        raise needs_extra("an ONNX file", "onnx") from None
    spec = policy.spec
    graph = Graph()
    state = graph.add("Flatten", "observation", axis=1, name="state")
    unit_action = add_network(graph, policy.network, policy.flat, state=state)
    action = _task_action(graph, policy, unit_action)
    kind = helper.np_dtype_to_tensor_dtype(policy.action_dtype)
    shape = graph.constant([-1, *spec.action_shape], np.int64)
    graph.add("Reshape", graph.add("Cast", action, to=kind), shape, name="action")

    value = helper.make_tensor_value_info
    inputs = [value("observation", onnx.TensorProto.FLOAT, ["batch", *spec.state_shape])]
    outputs = [value("action", kind, ["batch", *spec.action_shape])]
    model = helper.make_model(
        helper.make_graph(graph.nodes, "policy", inputs, outputs, graph.constants),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR,
        producer_name="td7",
        producer_version=__version__,
    )
    if spec.entries:
        metadata = {"entries": json.dumps([asdict(e) for e in spec.entries]), **metadata}
    helper.set_model_props(model, {"task": spec.task.id, **metadata})
    onnx.checker.check_model(model, full_check=True)
    _compare(policy, ReferenceEvaluator(model))
    with writing_to(path):
        write(path, model.SerializeToString())


def _task_action(graph: Graph, policy: Policy, action: str) -> str:
    """Add the map from [-1, 1] to the task's bounds, with a clip for rounding."""
    spec = policy.spec
    unit = ActionMap(spec.action_low, spec.action_high)
    middle = unit.to_task(np.zeros(spec.action_dim))
    half_width = unit.to_task(np.ones(spec.action_dim)) - middle
    scaled = graph.add("Mul", action, graph.constant(half_width))
    moved = graph.add("Add", scaled, graph.constant(middle))
    if policy.action_dtype.kind != "f":
        moved = graph.add("Round", moved)
    low, high = (graph.constant(bound) for bound in policy.action_bounds)
    return graph.add("Min", graph.add("Max", moved, low), high)


def _compare(policy: Policy, evaluator: Any) -> None:
    """Raise if the model's actions differ from the policy's."""
    spec = policy.spec
    observations = np.random.default_rng(0).standard_normal((64, *spec.state_shape))
    observations = observations.astype(np.float32)
    (actions,) = evaluator.run(None, {"observation": observations})
    expected, _ = policy.predict(observations)
    width = np.subtract(spec.action_high, spec.action_low).reshape(spec.action_shape)
    if policy.action_dtype.kind != "f":
        # Halfway between two integers the last digit decides which way an action is rounded.
        width = np.maximum(width, 1 / TOLERANCE)
    errors = np.abs(actions.astype(np.float64) - expected) / width
    if actions.dtype != expected.dtype or errors.max() > TOLERANCE:
        raise RunError(f"the ONNX file differs from the policy by {errors.max():.1e} of the range")


FORMATS: Mapping[str, Callable[[Path, Policy, Members, Path | None], Path]] = {
    "onnx": _to_onnx,
    "folder": single_policy.write_folder,
}

"""The extrapolation study: what keeps values from running away, on Ant (appendix E).

The paper draws it as curves, each with a replay of 1M and of 100k transitions; `policy_value` of
metrics.csv is the value estimate they show.
"""

from typing import Any

from td7.studies.rows.study import Study, rows

_VARIANTS: dict[str, tuple[dict[str, Any], str]] = {
    "No clipping": ({"value_clipping": False}, "no clipping"),
    "No zsa": (
        {"value_clipping": False, "critic_inputs": ("zs", "phi")},
        "no clipping, and no zsa in the critics",
    ),
    "Small phi": (
        {"value_clipping": False, "critic_phi_dim": 16},
        "no clipping, and only 16 units of phi in the critics",
    ),
    "No zsa, small phi": (
        {"value_clipping": False, "critic_inputs": ("zs", "phi"), "critic_phi_dim": 16},
        "no clipping, no zsa, and only 16 units of phi in the critics",
    ),
    "Frozen embeddings": (
        {"value_clipping": False, "encoder_training": "frozen"},
        "no clipping, and the initial encoder",
    ),
    "TD7": ({}, "with value clipping"),
}
_BUFFERS = {"1M": 1_000_000, "100k": 100_000}

EXTRAPOLATION = Study(
    name="extrapolation",
    title="Extrapolation error, all without checkpoints",
    where="appendix E",
    steps=5_000_000,  # the axis of the figure in section 4
    table="",
    rows=rows(
        {
            f"Buffer size {size}": {
                f"{label}, {size}": (
                    "td7",
                    {**changes, "replay_capacity": capacity},
                    f"{summary}; the last {size} transitions",
                )
                for label, (changes, summary) in _VARIANTS.items()
            }
            for size, capacity in _BUFFERS.items()
        },
        common={"td7": {"checkpoints": "none"}},
    ),
    tasks=("Ant-v4",),
)

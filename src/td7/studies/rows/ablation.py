"""The ablations: what each part of TD7 brings, and what it brings to TD3 (appendix G)."""

from typing import Any

from td7.studies.rows.study import Study, rows

_DEFAULT: dict[str, tuple[str, dict[str, Any], str]] = {
    "TD7": ("td7", {}, "everything"),
    "TD3": ("td3", {}, "the baseline"),
}
_MAIN: dict[str, tuple[str, dict[str, Any], str]] = {
    "No SALE": (
        "td7",
        {"critic_inputs": ("sa",), "actor_inputs": ("s",)},
        "Q(s, a) and pi(s) of raw states and actions",
    ),
    "No checkpoints": ("td7", {"checkpoints": "none"}, "an update after every time step"),
    "No LAP": ("td7", {"replay": "uniform"}, "uniform replay and the squared error"),
}
_SUB: dict[str, tuple[str, dict[str, Any], str]] = {
    "No SALE, with encoder": (
        "td7",
        {"encoder_training": "end_to_end", "encoder_loss_weight": 0.0, "actor_inputs": ("s",)},
        "the encoder is a part of the critics and trained with them; pi(s)",
    ),
    "TD3 with encoder": ("td3", {"encoder": True}, "the encoder is a part of the critics"),
    "Current policy": ("td7", {"test_policy": "current"}, "evaluations test the current policy"),
    "TD3 with checkpoints": ("td3", {"checkpoints": "minimum"}, "policy checkpoints"),
    "TD3 with LAP": ("td3", {"replay": "lap"}, "LAP and its Huber loss"),
    "No clipping": ("td7", {"value_clipping": False}, "value targets are not clipped"),
    "TD3 with clipping": ("td3", {"value_clipping": True}, "value targets are clipped"),
    "No normalization": ("td7", {"zs_norm": "none", "phi_norm": "none"}, "no AvgL1Norm"),
    "No fixed encoder": (
        "td7",
        {"fixed_embeddings": False},
        "all networks read the current encoder",
    ),
    "No implementation": (
        "td7",
        {"actor_value": "first", "critic_activation": "relu"},
        "the actor maximises one critic, and critics have ReLU",
    ),
    "Our TD3": (
        "td3",
        {"actor_value": "mean", "critic_activation": "elu", "target_update": "copy"},
        "both critics for the actor, ELU, hard copies every 250 updates",
    ),
}

# In the order of the paper's table.
_GROUPS: dict[str, tuple[str, ...]] = {
    "SALE": ("No SALE", "No SALE, with encoder", "TD3 with encoder"),
    "Checkpoints": ("No checkpoints", "Current policy", "TD3 with checkpoints"),
    "LAP": ("No LAP", "TD3 with LAP"),
    "Clipping": ("No clipping", "TD3 with clipping"),
    "SALE components": ("No normalization", "No fixed encoder"),
    "Implementation": ("No implementation", "Our TD3"),
}
_ALL = {**_MAIN, **_SUB}

ABLATION_MAIN = Study(
    name="ablation-main",
    title="Main components",
    where="section 6, appendix G.1",
    steps=5_000_000,
    table="ablation_5M",
    rows=rows({"Default": _DEFAULT, "Main components": _MAIN}, common={}),
)

ABLATION = Study(
    name="ablation",
    title="Subcomponents",
    where="appendix G.2",
    steps=1_000_000,
    table="ablation_1M",
    rows=rows(
        {
            "Default": _DEFAULT,
            **{g: {label: _ALL[label] for label in labels} for g, labels in _GROUPS.items()},
        },
        common={},
    ),
)

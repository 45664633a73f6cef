"""The design study: what SALE predicts, who reads it, how it is normalised (appendix D)."""

from td7.studies.rows.study import Study, rows

NO_NORM = {"zs_norm": "none", "phi_norm": "none"}

DESIGN = Study(
    name="design",
    title="Design choices of SALE, all without checkpoints",
    where="section 4.2, appendix D",
    steps=1_000_000,
    table="design",
    rows=rows(
        {
            "Default": {
                "TD7 (no checkpoints)": ("td7", {}, "the reference of all rows"),
                "TD3": ("td3", {}, "the baseline"),
            },
            "Learning Target": {
                "s'": ("td7", {"learning_target": "next_state"}, "zsa predicts s', and is as wide"),
                "zs'_target": (
                    "td7",
                    {"learning_target": "slow_next_zs"},
                    "zsa predicts f(s') of a slowly moving f",
                ),
                "zs and r": (
                    "td7",
                    {"learning_target": "next_zs_and_reward"},
                    "g also predicts the reward",
                ),
                "zs'a'": (
                    "td7",
                    {"learning_target": "next_zsa"},
                    "zsa predicts zsa of the next state and the target policy's action",
                ),
            },
            "Network Input": {
                "Q, remove zsa": ("td7", {"critic_inputs": ("zs", "phi")}, "Q(zs, s, a)"),
                "Q, remove zs": ("td7", {"critic_inputs": ("zsa", "phi")}, "Q(zsa, s, a)"),
                "Q, remove s,a": ("td7", {"critic_inputs": ("zsa", "zs")}, "Q(zsa, zs)"),
                "Q, zsa only": ("td7", {"critic_inputs": ("zsa",)}, "Q(zsa)"),
                "Q, s,a only": ("td7", {"critic_inputs": ("phi",)}, "Q(s, a)"),
                "pi, s only": ("td7", {"actor_inputs": ("phi",)}, "pi(s)"),
                "pi, zs only": ("td7", {"actor_inputs": ("zs",)}, "pi(zs)"),
                "No fixed embeddings": (
                    "td7",
                    {"fixed_embeddings": False},
                    "all networks read the current encoder",
                ),
            },
            "Normalization": {
                "No normalization on phi": ("td7", {"phi_norm": "none"}, "AvgL1Norm only on zs"),
                "No normalization": ("td7", NO_NORM, "no AvgL1Norm anywhere"),
                "Normalization on zsa": ("td7", {"zsa_norm": "avg_l1"}, "AvgL1Norm also on zsa"),
                "BatchNorm": (
                    "td7",
                    {"zs_norm": "batch", "phi_norm": "batch"},
                    "batch norm in place of AvgL1Norm",
                ),
                "LayerNorm": (
                    "td7",
                    {"zs_norm": "layer", "phi_norm": "layer"},
                    "layer norm in place of AvgL1Norm",
                ),
                "Cosine similarity loss": (
                    "td7",
                    {**NO_NORM, "encoder_loss": "cosine"},
                    "the encoder's loss is -cos(zsa, zs'), and no norm",
                ),
            },
            "End-to-end": {
                f"End-to-end, {beta:g}": (
                    "td7",
                    {"encoder_training": "end_to_end", "encoder_loss_weight": beta},
                    f"the encoder learns from the critics' loss + {beta:g} times its own",
                )
                for beta in (0.1, 1.0, 10.0)
            },
        },
        common={"td7": {"checkpoints": "none"}},
    ),
)

# The labels of the paper's figure of percent losses, and the rows that they name.
PERCENT_LOSS_LABELS = {
    "s'": "s'",
    "zs'_target": "zs'_target",
    "zs' and r": "zs and r",
    "zs'a'": "zs'a'",
    "Q(zs,s,a)": "Q, remove zsa",
    "Q(zsa,s,a)": "Q, remove zs",
    "Q(zsa,zs)": "Q, remove s,a",
    "Q(zsa)": "Q, zsa only",
    "Q(s,a)": "Q, s,a only",
    "pi(s)": "pi, s only",
    "pi(zs)": "pi, zs only",
    "No fixed": "No fixed embeddings",
    "zs only": "No normalization on phi",
    "None": "No normalization",
    "Norm zsa": "Normalization on zsa",
    "BatchNorm": "BatchNorm",
    "LayerNorm": "LayerNorm",
    "Cosine loss": "Cosine similarity loss",
    "0.1": "End-to-end, 0.1",
    "1": "End-to-end, 1",
    "10": "End-to-end, 10",
}

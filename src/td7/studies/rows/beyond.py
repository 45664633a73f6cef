"""The paper's parts in other agents, which the paper calls possible but does not test."""

from td7.studies.rows.study import Study, rows

BEYOND = Study(
    name="beyond",
    title="The paper's parts in other agents",
    where="not in the paper; sections 4.1 and 5.1 say that they are general",
    steps=1_000_000,
    table="",
    rows=rows(
        {
            "SAC": {
                "SAC": ("sac", {}, "the baseline"),
                "SAC + SALE": ("sac", {"sale": True}, "critics and actor read SALE's embeddings"),
                "SAC + checkpoints": ("sac", {"checkpoints": "minimum"}, "policy checkpoints"),
            },
            "TQC": {
                "TQC": ("tqc", {}, "the baseline"),
                "TQC + SALE": ("tqc", {"sale": True}, "critics and actor read SALE's embeddings"),
                "TQC + checkpoints": ("tqc", {"checkpoints": "minimum"}, "policy checkpoints"),
            },
            "TD3": {
                "TD3": ("td3", {}, "the baseline"),
                "TD3+OFE": ("td3+ofe", {}, "TD3 on the features of OFENet"),
                "TD3+OFE + checkpoints": (
                    "td3+ofe",
                    {"checkpoints": "minimum"},
                    "policy checkpoints",
                ),
            },
        },
        common={},
    ),
)

"""The benchmark: TD7 and its online baselines (section 6)."""

from td7.studies.rows.study import Study, rows

ONLINE = Study(
    name="online",
    title="TD7 and its baselines",
    where="section 6, Table 1",
    steps=5_000_000,
    table="online",
    rows=rows(
        {
            "Agents": {
                "TD3": ("td3", {}, "twin delayed DDPG"),
                "SAC": ("sac", {}, "soft actor-critic"),
                "TQC": ("tqc", {}, "SAC with truncated quantile critics"),
                "TD3+OFE": ("td3+ofe", {}, "TD3 on the features of OFENet"),
                "TD7": ("td7", {}, "TD3 with SALE, checkpoints and LAP"),
            }
        },
        common={},
    ),
)

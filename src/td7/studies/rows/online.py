"""The benchmark, TD7 and its online baselines, and their run time (section 6, appendix I)."""

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

RUNTIME = Study(
    name="runtime",
    title="Run time",
    where="section 6, appendix I",
    steps=1_000_000,
    table="",
    rows=ONLINE.rows,
    tasks=("HalfCheetah-v4",),
    times_machines=True,
)

"""The offline benchmark: TD7 and its baselines on D4RL's data (section 6)."""

from td7.studies.rows.study import Study, rows

OFFLINE = Study(
    name="offline",
    title="TD7 and its baselines, offline",
    where="section 6, Table 2",
    steps=1_000_000,
    table="offline",
    rows=rows(
        {
            "Agents": {
                "CQL": ("cql", {}, "SAC with low values outside the data"),
                "TD3+BC": ("td3+bc", {}, "TD3 that also clones"),
                "IQL": ("iql", {}, "values and policy from the data's actions alone"),
                "X-QL": ("xql", {}, "IQL with Gumbel regression"),
                "TD7": ("td7", {}, "TD3 with SALE, LAP and behaviour cloning"),
            }
        },
        common={},
    ),
    tasks=("HalfCheetah-v4", "Hopper-v4", "Walker2d-v4"),
    datasets=tuple(
        f"{task}-{kind}-v2"
        for task in ("halfcheetah", "hopper", "walker2d")
        for kind in ("medium", "medium-replay", "medium-expert")
    ),
)

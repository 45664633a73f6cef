"""The checkpoint study: how long, by what, and from when a policy is assessed (appendix F)."""

from td7.studies.rows.study import Study, rows

CHECKPOINTS = Study(
    name="checkpoints",
    title="Policy checkpoints",
    where="appendix F",
    steps=5_000_000,
    table="checkpoints_5M",
    rows=rows(
        {
            "Default": {
                "TD7": ("td7", {}, "the minimum of 1 episode, later of 20, ended early"),
                "TD7 (no checkpoints)": (
                    "td7",
                    {"checkpoints": "none"},
                    "an update after every time step",
                ),
            },
            "Maximum": {
                f"Max {n} episodes": (
                    "td7",
                    {"late_assessment_episodes": n},
                    f"late assessments of at most {n} episodes",
                )
                for n in (10, 50)
            },
            "Criterion": {
                "Mean, fixed": (
                    "td7",
                    {"checkpoints": "mean", "assessments_end_early": False},
                    "judged by the mean, never ended early",
                ),
                "Mean, variable": ("td7", {"checkpoints": "mean"}, "judged by the mean"),
            },
            "Immediate": {
                f"Immediate, {n} episodes": (
                    "td7",
                    {
                        "early_assessment_episodes": n,
                        "late_assessment_episodes": n,
                        "criterion_reset_weight": 1.0,
                    },
                    f"{n} episodes from the start, and no reset",
                )
                for n in (10, 20, 50)
            },
            "Fixed": {
                f"Fixed, {n} episodes": (
                    "td7",
                    {"assessments_end_early": False, "late_assessment_episodes": n},
                    f"late assessments of {n} episodes, never ended early",
                )
                for n in (10, 20, 50)
            },
        },
        common={},
    ),
)

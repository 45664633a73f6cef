"""The run time of the online agents, on one task and the same machine (section 6, appendix I)."""

from td7.studies.rows.online import ONLINE
from td7.studies.rows.study import Study

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

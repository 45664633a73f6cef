"""The fault campaign: kills, signals, failing disks and bad input, thousands of times.

`python -m faults` in tests/ runs it; docs/guides/resume.md describes it.
"""

"""The fault campaign: real runs on hosts of ``tests/lab`` to which random faults happen, and what must hold afterwards.

``python -m tests.chaos --minutes 60`` runs it and writes a report. A seed gives the same launcher, faults and moments
again: ``python -m tests.chaos --only SEED``. docs/reliability.md explains it.
"""

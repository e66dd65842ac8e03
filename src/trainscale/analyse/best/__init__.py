"""The best configuration for every device count, from the trials of one or several runs.

estimate.py has the statistics, points.py the measured points of all runs, criteria.py what "best" can mean, and
choose.py the answer. All are pure functions of records.
"""

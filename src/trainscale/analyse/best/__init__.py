"""The best configuration for every device count, from the trials of one or several runs.

quantity.py has what is compared, points.py the measured points of all runs, criteria.py what "best" can mean, and
choose.py the answer. All are pure functions of records.
"""

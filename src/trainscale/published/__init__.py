"""Scaling results that others have published: a table with sources, its types, and the checks of its figures.

Nothing here was measured by trainscale. ``analyse/`` compares runs with these curves, ``report/`` shows them.
"""

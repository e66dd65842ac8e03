"""Jupyter for a notebook, here, on a host, or in a Slurm job; the browser's connections go through the pipe to it."""

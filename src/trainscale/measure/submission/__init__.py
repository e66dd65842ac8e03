"""Runs a whole sweep as one Slurm job: the script to submit, the status of the job, and how to follow it."""

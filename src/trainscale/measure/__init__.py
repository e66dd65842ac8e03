"""The order of trials, preflight, batch search, parity of a plan, Slurm submission, and the run itself."""

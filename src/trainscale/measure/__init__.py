"""Which trial comes next, until what; the run itself; a Slurm submission."""

"""Questions to runs: what each computes and how it words its answer."""

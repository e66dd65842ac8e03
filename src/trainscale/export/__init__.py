"""One tidy table of trials, and exporters that hand it, or the points, to other programs after a run."""

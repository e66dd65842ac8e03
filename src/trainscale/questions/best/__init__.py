"""The best configuration for every device count: the candidates of runs, the choice, and the words."""

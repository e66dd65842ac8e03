"""Published scaling results: the curves, where a run stands among them, and how both are shown."""

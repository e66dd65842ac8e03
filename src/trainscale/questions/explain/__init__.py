"""Where the efficiency of a run went."""

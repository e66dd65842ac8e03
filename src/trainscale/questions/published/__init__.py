"""Published scaling results."""

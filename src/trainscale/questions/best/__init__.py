"""The best configuration for every device count."""

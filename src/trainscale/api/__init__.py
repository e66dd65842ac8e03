"""What ``import trainscale`` offers in Python. The names are listed in the package's ``__all__``."""

"""trainscale measures how deep-learning training scales from one device to many hosts."""

__version__ = "0.1.0"

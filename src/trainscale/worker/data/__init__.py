"""Images to train on: random ones, published data sets, folders of photographs."""

from .facts import SOURCES

__all__ = ["SOURCES"]

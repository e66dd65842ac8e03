"""Images to train on: random ones, published data sets, folders of photographs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .facts import SOURCES, SYNTHETIC

if TYPE_CHECKING:
    from ..frameworks.base import Adapter
    from ..job import Job

__all__ = ["SOURCES", "open_source"]


def open_source(job: Job, adapter: Adapter) -> Any:
    """Return the batches of a rank. What reads real images is imported only where there are some."""
    if job.config.data == SYNTHETIC:
        from .synthetic import SyntheticSource

        return SyntheticSource(job, adapter)
    from .source import DatasetSource

    return DatasetSource(job, adapter)

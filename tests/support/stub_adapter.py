"""An adapter without a framework, for tests of the loop: they override what they use."""

from __future__ import annotations

from typing import Any

from trainscale.worker.config import Config
from trainscale.worker.frameworks.base import Adapter


class StubAdapter(Adapter):
    @classmethod
    def versions(cls) -> dict[str, str]:
        return {}

    @classmethod
    def gpus(cls) -> list[str]:
        return []

    @classmethod
    def try_model(cls, config: Config) -> int:
        return 0

    def join(self) -> None: ...

    def build(self) -> int:
        return 0

    def place(self, images: Any, labels: Any) -> Any:
        assert images.any()
        return len(labels)

    def wait(self, ticket: Any) -> None: ...

    def loss(self) -> float:
        return 0.0

    def weights(self) -> dict[str, Any]:
        return {}

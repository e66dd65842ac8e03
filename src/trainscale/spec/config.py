"""What is measured: a config, and one trial of it. Both are frozen and have stable keys."""

from dataclasses import dataclass, replace

from ..worker.config import APART, AUTO, BESIDE, EACH_HOST, FILL, ROUND_ROBIN, STRONG, WEAK, Config, compute_digest

__all__ = [
    "APART", "AUTO", "BESIDE", "EACH_HOST", "FILL", "ROUND_ROBIN", "STRONG", "WEAK", "Config", "PointKey", "Trial",
    "compute_digest", "remove_exchange",
]  # fmt: skip

PointKey = tuple[Config, int]  # names a point: all repeats of a config on one device count


@dataclass(frozen=True)
class Trial:
    """One config on one device count, once, in fresh processes."""

    config: Config
    devices: int
    repeat: int
    short: bool = False  # in a search, with numbers of their own

    @property
    def point(self) -> PointKey:
        return self.config, self.devices

    @property
    def key(self) -> str:
        return f"{self.config.key}-n{self.devices}-{'s' if self.short else 'r'}{self.repeat}"

    @property
    def label(self) -> str:
        config = self.config
        scaling = f" {STRONG}" if config.scaling == STRONG else ""
        which = f"{'short trial' if self.short else 'repeat'} {self.repeat + 1}"
        return (
            f"{config.framework} {config.model} b{config.batch} {config.strategy_label}{scaling}"
            f" · {self.devices} device{'s' if self.devices > 1 else ''} · {which}"
        )


def remove_exchange(config: Config) -> Config:
    return replace(config, strategy="independent", servers=0, server_placement=BESIDE, servers_per_host=0)

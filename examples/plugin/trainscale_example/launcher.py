"""The launcher ``nice``: this machine, but whatever else runs on it goes first."""

from __future__ import annotations

from trainscale.launch.launchers.local import LocalLauncher


class NiceLauncher(LocalLauncher):
    name = "nice"

    def command(self, host: str) -> list[str]:
        """The keeper's ranks inherit its priority."""
        return ["nice", "-n", "10", *super().command(host)]

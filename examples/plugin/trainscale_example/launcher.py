"""The launcher ``nice``: it runs everything on this machine with a low priority, and has a setting for that."""

from __future__ import annotations

from dataclasses import dataclass

from trainscale.launch.launchers.local import LocalLauncher
from trainscale.spec.settings import SettingGroup, setting, whole


@dataclass(frozen=True)
class NiceSettings(SettingGroup):
    table, title = "nice", "nice"

    niceness: int = setting(whole(1), "how much priority the processes give up, at most 19", default=10)


class NiceLauncher(LocalLauncher):
    name = "nice"
    settings_type = NiceSettings
    settings: NiceSettings

    def command(self, host: str) -> list[str]:
        """Start the keeper with a low priority; its ranks inherit that."""
        return ["nice", "-n", str(self.settings.niceness), *super().command(host)]

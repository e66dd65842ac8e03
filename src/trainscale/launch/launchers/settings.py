"""The settings that launchers declare, in a module of its own: a command needs all of them for its flags, but only one
launcher.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from ...spec.settings import LINES, NAME, SWITCH, SettingGroup, setting


@dataclass(frozen=True)
class SshSettings(SettingGroup):
    """The settings of every launcher that uses ssh."""

    table: ClassVar[str] = "ssh"
    title: ClassVar[str] = "ssh"

    ssh_config: str | None = setting(NAME, "configuration file of ssh", default_text="the user's", metavar="FILE")
    forward_agent: bool = setting(SWITCH, "forward the ssh agent to the hosts", default=False)

    @property
    def config_path(self) -> Path | None:
        return Path(self.ssh_config).expanduser() if self.ssh_config else None


@dataclass(frozen=True)
class SlurmSettings(SettingGroup):
    """The settings of a job that is submitted."""

    table: ClassVar[str] = "slurm"
    title: ClassVar[str] = "Slurm"

    partition: str | None = setting(NAME, "partition of a submitted job", default_text="chosen by Slurm")
    time: str | None = setting(
        NAME,
        "time limit of a submitted job, such as 2:00:00",
        default_text="estimated from the plan",
        metavar="TIME",
    )
    account: str | None = setting(NAME, "account of a submitted job", default_text="chosen by Slurm")
    gres: str | None = setting(
        NAME,
        "generic resources of a submitted job",
        default_text="gpu:N with --device cuda and -g N",
        metavar="LIST",
    )
    sbatch: tuple[str, ...] = setting(
        LINES, "another option for sbatch, such as --constraint=gpu; may be repeated", default=(), metavar="OPTION"
    )


@dataclass(frozen=True)
class YarnSettings(SettingGroup):
    table: ClassVar[str] = "yarn"
    title: ClassVar[str] = "YARN"

    queue: str | None = setting(NAME, "YARN queue", default_text="default")
    yarn: tuple[str, ...] = setting(
        LINES,
        "another option for YARN's distributed shell, such as '-container_memory 8192'; may be repeated",
        default=(),
        metavar="OPTION",
    )


@dataclass(frozen=True)
class RaySettings(SettingGroup):
    table: ClassVar[str] = "ray"
    title: ClassVar[str] = "Ray"

    ray_address: str | None = setting(
        NAME,
        "address of the Ray head: ADDRESS:PORT or ray://ADDRESS:PORT",
        default_text="RAY_ADDRESS, else the cluster of this machine",
        metavar="ADDRESS",
    )


LAUNCHER_SETTINGS = (SshSettings, SlurmSettings, YarnSettings, RaySettings)

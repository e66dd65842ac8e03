"""Slurm over a lab's hosts: slurmctld at the controller, slurmd on each host, munge for both, made-up GPUs.

Nothing of the machine's own Slurm or munge is used or touched: configuration, logs and sockets are in the lab's folder.
"""

from __future__ import annotations

import os
import secrets
import time
from pathlib import Path
from typing import TYPE_CHECKING

from .spaces import LabError

if TYPE_CHECKING:
    from .hosts import Lab

# proctrack/linuxproc and task/none need no cgroups. config_overrides: a host may claim more than the machine has.
_CONFIGURATION = """\
ClusterName=lab
SlurmctldHost={controller}({address})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={socket}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdPidFile=/run/slurmd.pid
SlurmdLogFile={folder}/slurmd.%n.log
SlurmdSpoolDir=/var/spool/slurmd.lab
SlurmdParameters=config_overrides
StateSaveLocation={folder}/state
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_min_interval=100000,bf_interval=1
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/filetxt
JobCompLoc={folder}/jobcomp.log
ReturnToService=2
SlurmdTimeout=10
TCPTimeout=2
MessageTimeout=5
KillWait=2
GresTypes=gpu
NodeName=DEFAULT CPUs=4 Sockets=1 CoresPerSocket=4 ThreadsPerCore=1 RealMemory=4000 State=UNKNOWN{gpus}
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


class Slurm:
    """Started when made; ends with the lab, or by ``stop``. Partition ``main``, 4 CPUs and 4000 MB a host."""

    def __init__(self, lab: Lab, gpus: int = 0) -> None:
        self.gpus = gpus
        self.folder = lab.shared / "slurm"
        self.environment = {"SLURM_CONF": str(self.folder / "slurm.conf")}
        self._lab = lab
        # At the same path, but each host's own: hosts share nothing of the lab's folder but ``shared``.
        self._socket = lab.folder / "munge" / "socket"
        self._devices = [f"/run/lab/gpu{index}" for index in range(gpus)]
        self._write()
        try:
            self._start("controller", ["slurmctld", "-c", "-f", str(self.folder / "slurm.conf")])
            for name in lab.hosts:
                self.start(name)
            self.wait_for(lab.hosts)
        except BaseException:
            self.stop()
            raise

    def start(self, name: str) -> None:
        """What a host's boot would start: for after ``lab.boot``."""
        for device in self._devices:
            self._lab.administer(name, ["mknod", device, "c", "1", "3"])  # any device will do: this is a /dev/null
        self._start(name, ["slurmd", "-f", str(self.folder / "slurm.conf")])

    def wait_for(self, hosts: list[str], state: str = "idle", seconds: float = 60.0) -> None:
        """Until ``sinfo`` reports these hosts to be so."""
        deadline = time.monotonic() + seconds
        while True:
            states = self.states()
            if all(states.get(name) == state for name in hosts):
                return
            if time.monotonic() > deadline:
                raise LabError(f"Slurm's hosts are not {state} after {seconds:.0f} s: {states}\n{self._logs()}")
            time.sleep(0.05)

    def states(self) -> dict[str, str]:
        """Host → idle, allocated, mixed, down…; a star after it says that the host does not answer."""
        command = ["sinfo", "--noheader", "--Node", "--format=%N %T"]
        done = self._lab.run(command, env={**os.environ, **self.environment})
        return dict(line.split() for line in done.stdout.splitlines())

    def stop(self) -> None:
        self._lab.signal("controller", ["slurmctld", "slurmscriptd", "munged"])
        for name in self._lab.hosts:
            if self._lab.has_power(name):
                self._lab.signal(name, ["slurmstepd", "slurmd", "munged"])

    def _write(self) -> None:
        for folder in (self.folder, self.folder / "state"):
            folder.mkdir()
        key = self.folder / "munge.key"
        key.write_bytes(secrets.token_bytes(1024))
        key.chmod(0o400)
        nodes = [f"NodeName={name} NodeAddr={self._lab.address(name)}" for name in self._lab.hosts]
        text = _CONFIGURATION.format(
            controller="controller",
            address=self._lab.controller_address,
            socket=self._socket,
            folder=self.folder,
            gpus=f" Gres=gpu:{self.gpus}" if self.gpus else "",
            nodes="\n".join(nodes),
        )
        (self.folder / "slurm.conf").write_text(text)
        # Else slurmd would look for the machine's kind, and want systemd for version 2.
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        (self.folder / "gres.conf").write_text("".join(f"Name=gpu File={device}\n" for device in self._devices))

    def _start(self, name: str, command: list[str]) -> None:
        """A host's munged, which returns when it listens, and then its part of Slurm."""
        own = self._socket.parent
        prepare = f'mkdir -p "{own}" && cp "{self.folder}/munge.key" "{own}/key" && chmod 400 "{own}/key"'
        self._lab.administer(name, ["sh", "-c", prepare])
        files = [f"--{what}-file={own / what}" for what in ("key", "pid", "log", "seed")]
        self._lab.administer(name, ["munged", "--force", f"--socket={self._socket}", "--num-threads=2", *files])
        self._lab.administer(name, command)

    def _logs(self, lines: int = 20) -> str:
        logs = sorted(Path(self.folder).glob("*.log"))
        return "\n".join(
            f"{log.name}:\n" + "\n".join(log.read_text(errors="replace").splitlines()[-lines:]) for log in logs
        )

"""Slurm on a lab's hosts: slurmctld at the controller, slurmd on each host, munge for both, simulated GPUs.

It does not touch the machine's own Slurm or munge: configuration, logs and sockets are in the lab's folder.
"""

from __future__ import annotations

import os
import secrets
import time
from pathlib import Path
from typing import TYPE_CHECKING

from .namespaces import LabError

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
    """A Slurm cluster, started when created. It ends with the lab or by ``stop``. Its partition is ``main``; each host
    has 4 CPUs and 4000 MB.
    """

    def __init__(self, lab: Lab, gpus: int = 0) -> None:
        self.gpus = gpus
        self.folder = lab.shared / "slurm"
        self.environment = {"SLURM_CONF": str(self.folder / "slurm.conf")}
        self._lab = lab
        # The path is the same on all hosts, but not the file: hosts share only the folder ``shared``.
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
        """Start Slurm on one host; call this after ``lab.boot``."""
        for device in self._devices:
            self._lab.administer(
                name, ["mknod", device, "c", "1", "3"]
            )  # any device will do; these are the numbers of /dev/null
        self._start(name, ["slurmd", "-f", str(self.folder / "slurm.conf")])

    def wait_for(self, hosts: list[str], state: str = "idle", seconds: float = 60.0) -> None:
        """Wait until ``sinfo`` reports this state for these hosts."""
        deadline = time.monotonic() + seconds
        while True:
            states = self.states()
            if all(states.get(name) == state for name in hosts):
                return
            if time.monotonic() > deadline:
                raise LabError(f"Slurm's hosts are not {state} after {seconds:.0f} s: {states}\n{self._logs()}")
            time.sleep(0.05)

    def states(self) -> dict[str, str]:
        """Return the state of each host: idle, allocated, mixed, down… A star after it means that the host does not
        answer.
        """
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
        # Otherwise slurmd detects the machine's version, and needs systemd for version 2.
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        (self.folder / "gres.conf").write_text("".join(f"Name=gpu File={device}\n" for device in self._devices))

    def _start(self, name: str, command: list[str]) -> None:
        """Start a host's munged, whose command returns when it listens, then its Slurm daemon."""
        folder = self._socket.parent
        prepare = f'mkdir -p "{folder}" && cp "{self.folder}/munge.key" "{folder}/key" && chmod 400 "{folder}/key"'
        self._lab.administer(name, ["sh", "-c", prepare])
        files = [f"--{what}-file={folder / what}" for what in ("key", "pid", "log", "seed")]
        self._lab.administer(name, ["munged", "--force", f"--socket={self._socket}", "--num-threads=2", *files])
        self._lab.administer(name, command)

    def _logs(self, lines: int = 20) -> str:
        logs = sorted(Path(self.folder).glob("*.log"))
        return "\n".join(
            f"{log.name}:\n" + "\n".join(log.read_text(errors="replace").splitlines()[-lines:]) for log in logs
        )

"""The Slurm launcher, for use inside an allocation: one srun starts a keeper on each host that a trial needs, and they
call back. Getting an allocation from a login node is for cli/submit.py.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence

from ...cluster.allocation import gpus_per_host
from ..connections.keeper import KeeperConnection
from .callback import CALLBACK_PROGRAM, CallbackEndpoint, CallbackLauncher
from .ssh import shell_command

# What the user asked of salloc or sbatch comes down here as variables, which srun would take for this step's options.
# A keeper wants none of it: it is one task a host, with all that the job has there.
_SHAPES = (
    "SRUN_",
    "SLURM_CPUS_PER_",
    "SLURM_CPU_BIND",
    "SLURM_DISTRIBUTION",
    "SLURM_EXACT",
    "SLURM_EXCLUSIVE",
    "SLURM_GPUS",
    "SLURM_GPU_BIND",
    "SLURM_GRES",
    "SLURM_HINT",
    "SLURM_HOSTFILE",
    "SLURM_MEM_",
    "SLURM_NTASKS_PER_",
    "SLURM_STDERRMODE",
    "SLURM_STDINMODE",
    "SLURM_STDOUTMODE",
    "SLURM_STEP_GRES",
    "SLURM_THREADS_PER_CORE",
    "SLURM_TRES_",
)
_OPTIONS = (
    "--overlap",  # beside other steps, such as the interactive one that this may run in
    "--ntasks-per-node=1",
    "--export=ALL",  # the call-back's token is in the environment
    "--cpu-bind=none",  # without -c and --exact a step has all CPUs of the job; ranks are pinned by the worker
    "--mem=0",  # all that the job has
    "--mpi=none",
    "--kill-on-bad-exit=1",  # a trial without one of its keepers is lost: end it now
    "--wait=0",  # some sites end a step some seconds after its first task
    "--label",  # what a host prints has its task's number before it
)
# What srun says when a task ends; «Terminated» are those that it ended because of another.
_ENDED = re.compile(r"^srun: error: (?P<hosts>\S+): tasks? (?P<task>\d+)\S*: (?P<how>(?!Terminated).+)$", re.MULTILINE)


class SlurmLauncher(CallbackLauncher):
    name = "slurm"
    index = 'os.environ["SLURM_PROCID"]'

    gpus: int | None = None  # that the job has on every host; None before anybody asked

    def command(self, hosts: Sequence[str], call: CallbackEndpoint) -> list[str]:
        count = len(hosts)
        words = ["srun", *_OPTIONS, f"--nodes={count}", f"--ntasks={count}", f"--nodelist={','.join(hosts)}"]
        if self.gpus:
            # Said here because what was asked for the whole job, or for its tasks, does not fit some of its hosts.
            words.append(f"--gres=gpu:{self.gpus}")
        # A cluster's hosts see the same files as a rule, and this Python is known to be new enough.
        python = self.access.python or sys.executable
        keeper = self.keeper_command(python)
        if self.access.setup or python.startswith("~/"):
            keeper = ["/bin/sh", "-c", shell_command(keeper, self.access.setup)]
        return [*words, *keeper]

    def keeper_command(self, host_python: str) -> list[str]:
        """It gives its node's name as Slurm has it, which need not be its host's."""
        code = CALLBACK_PROGRAM.replace(
            "socket.gethostname()", '(os.environ.get("SLURMD_NODENAME")or socket.gethostname())'
        )
        return [host_python, "-c", code.replace("{index}", self.index)]

    def environment(self, call: CallbackEndpoint) -> dict[str, str]:
        whole = super().environment(call)
        return {name: value for name, value in whole.items() if not name.startswith(_SHAPES)}

    def identify(self, index: int, hostname: str, hosts: Sequence[str]) -> str:
        """By Slurm's own name of the node; by order where the hosts came from a file with other names."""
        return hostname if hostname in hosts else super().identify(index, hostname, hosts)

    def explain(self, host: str, said: str) -> str:
        """The last line that its task printed, with how it ended."""
        for found in _ENDED.finditer(said):
            if host in found["hosts"].split(",") or "[" in found["hosts"]:
                lines = re.findall(rf"^ *{found['task']}: (.*\S)", said, re.MULTILINE)
                own = [line for line in lines if " CANCELLED " not in line]  # which is what comes of it
                return f"{own[-1]} ({found['how']})" if own else found["how"]
        return ""

    def open(self, hosts: Sequence[str]) -> list[KeeperConnection]:
        if self.gpus is None:
            self.gpus = gpus_per_host(os.environ)
        return super().open(hosts)

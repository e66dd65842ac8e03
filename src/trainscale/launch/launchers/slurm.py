"""The Slurm launcher, inside an allocation: for each trial, an srun starts the keepers, which call back."""

import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property

from ...cluster.allocation import read_gpus_per_host, run_scontrol
from ...errors import InputError
from ...spec.groups import SlurmSettings
from .callback import CallbackEndpoint, CallbackLauncher, CommandReport
from .ssh import make_shell_command

# srun would take these options of salloc or sbatch for options of this step.
_STEP_OPTIONS = re.compile(
    "SRUN_|SLURM_(CPUS_PER_|CPU_BIND|DISTRIBUTION|EXACT|EXCLUSIVE|GPUS|GPU_BIND|GRES|HINT|HOSTFILE|MEM_"
    "|NTASKS_PER_|STDERRMODE|STDINMODE|STDOUTMODE|STEP_GRES|THREADS_PER_CORE|TRES_)"
)
_OPTIONS = (
    "--overlap",  # run beside other steps, such as the interactive one that this may run in
    "--ntasks-per-node=1",
    "--export=ALL",  # the callback token is in the environment
    "--cpu-bind=none",  # the worker pins the ranks
    "--mem=0",  # all memory of the job
    "--mpi=none",
    "--kill-on-bad-exit=1",  # a trial cannot go on without one of its keepers
    "--wait=0",  # some sites end a step soon after its first task
    "--label",  # put the number of the task before each line
)
# What srun prints when Slurm loses a node or cancels the step, and when a task ends.
_NODE_FAILURE = re.compile(r"^srun: error: Node failure on (?P<hosts>\S+)", re.MULTILINE)
_CANCELLED = re.compile(r"STEP \S+ ON \S+ CANCELLED AT \S+ DUE TO (?P<reason>[A-Z ]+[A-Z])")
_TASK_END = re.compile(
    r"^srun: error: (?P<hosts>\S+): tasks? (?P<task>\d+)\S*: (?P<reason>(?!Terminated).+)$", re.MULTILINE
)


class SlurmLauncher(CallbackLauncher):
    name = "slurm"
    settings_type = SlurmSettings
    no_hosts = "no allocation here; name --nodes to submit a job"
    index = 'os.environ["SLURM_PROCID"]'
    hostname = '(os.environ.get("SLURMD_NODENAME")or socket.gethostname())'  # Slurm's name of the node

    @cached_property
    def gpus(self) -> int:
        """How many the job has on every host."""
        return read_gpus_per_host(os.environ)

    def command(self, hosts: Sequence[str], endpoint: CallbackEndpoint) -> list[str]:
        count = len(hosts)
        argv = ["srun", *_OPTIONS, f"--nodes={count}", f"--ntasks={count}"]
        argv.append(f"--nodelist={','.join(hosts)}")
        if self.gpus:
            # What was requested for the whole job may not fit some of its hosts.
            argv.append(f"--gres=gpu:{self.gpus}")
        # Hosts usually see the same files, and this Python is new enough.
        python = self.access.python or sys.executable
        keeper = self.keeper_command(python)
        if self.access.setup or python.startswith("~/"):
            keeper = ["/bin/sh", "-c", make_shell_command(keeper, self.access.setup)]
        return [*argv, *keeper]

    def environment(self, endpoint: CallbackEndpoint) -> dict[str, str]:
        environment = super().environment(endpoint)
        return {name: value for name, value in environment.items() if not _STEP_OPTIONS.match(name)}

    def identify(self, index: int, hostname: str, hosts: Sequence[str]) -> str:
        """Identify a host by Slurm's name of the node, else by its order."""
        return hostname if hostname in hosts else super().identify(index, hostname, hosts)

    def read_output(self, output: str, hosts: Sequence[str]) -> CommandReport:
        """Read which nodes Slurm lost, and what each failed task printed last."""
        by_host: dict[str, str] = {}
        task_ends = list(_TASK_END.finditer(output))
        for match in task_ends:
            lines = re.findall(rf"^ *{match['task']}: (.*\S)", output, re.MULTILINE)
            own = [line for line in lines if " CANCELLED " not in line]  # which is a consequence
            message = f"{own[-1]} ({match['reason']})" if own else match["reason"]
            for host in expand_node_list(match["hosts"]):
                by_host.setdefault(host, message)
        lost = [host for nodes in _NODE_FAILURE.findall(output) for host in expand_node_list(nodes)]
        failed = [host for host in lost if host in hosts]
        by_host.update(dict.fromkeys(failed, "Slurm reports a node failure"))
        before = output[: task_ends[0].start()] if task_ends else output
        cancelled, end_notice = _CANCELLED.search(before), ""
        if "srun: forcing job termination" in before:
            end_notice = "srun was told to end"
        elif cancelled and not lost:
            end_notice = f"Slurm cancelled the step due to {cancelled['reason'].lower()}"
        return CommandReport(by_host, failed, end_notice=end_notice)


def expand_node_list(nodes: str) -> list[str]:
    """Expand a list as Slurm writes it, such as node[1-3,7],login."""
    if "[" in nodes:
        with suppress(InputError):  # the message of srun is shown without the hosts' names then
            return run_scontrol(["show", "hostnames", nodes], f"expand {nodes}").split()
    return nodes.split(",")

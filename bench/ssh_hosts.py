"""Measures what the controller spends on starting keepers over ssh: its own processor time with that of its ssh
processes, and the time until all hosts have run a small task. Hosts are those of tests/lab (root on Linux).

python bench/ssh_hosts.py [--hosts 2,16,64] [--trials 3]

All hosts share the cores of this machine, so the elapsed time grows with them; the controller's processor time is what
would remain with hosts of their own. The first connection logs in, the others use the keepers again. With ``--anew``,
every connection logs in, as before keepers were kept.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

from trainscale.cluster.hosts import HostAccess
from trainscale.launch.launchers.ssh import SshLauncher
from trainscale.spec.devices import Host
from trainscale.worker.job import Task

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds() -> float:
    """Return the processor time of this process and of those that it started, ended or not."""
    own, ended = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    seconds = own.ru_utime + own.ru_stime + ended.ru_utime + ended.ru_stime
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it ended meanwhile
        if int(fields[1]) == os.getpid():
            seconds += (int(fields[11]) + int(fields[12])) / _TICKS
    return seconds


def measure(names: list[str], addresses: list[str], trials: int, anew: bool) -> list[tuple[float, float]]:
    """Run inside the lab. Return elapsed and processor seconds of every connection."""
    hosts = tuple(Host(address, name) for address, name in zip(addresses, names, strict=True))
    launcher = SshLauncher(HostAccess(hosts))
    launcher.reuses_keepers = not anew
    results = []
    for _ in range(trials):
        began, cpu_began = time.monotonic(), cpu_seconds()
        with launcher.connect(names, 300.0) as connected:
            connected.find_ports(dict.fromkeys(names, 1))
            connected.start([Task(name, 0, ["true"]) for name in names], 300.0)
            for _event in connected.read_events(300.0):
                pass
        results.append((time.monotonic() - began, cpu_seconds() - cpu_began))
    launcher.close()
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", default="2,16,64")
    parser.add_argument("--trials", type=int, default=3)
    parser.add_argument("--anew", action="store_true")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        names, addresses = json.loads(options.inside)
        print(json.dumps(measure(names, addresses, options.trials, options.anew)))
        return
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from lab import Lab

    print(" hosts  connection  elapsed s  CPU s  CPU ms/host")
    for count in map(int, options.hosts.split(",")):
        with Lab(count) as lab:
            where = json.dumps([lab.hosts, [lab.address(name) for name in lab.hosts]])
            command = [*lab.controller, sys.executable, __file__, "--inside", where, "--trials", str(options.trials)]
            done = subprocess.run(
                [*command, *(["--anew"] if options.anew else [])], stdout=subprocess.PIPE, text=True, check=True
            )
        for number, (elapsed, cpu) in enumerate(json.loads(done.stdout), 1):
            print(f"{count:>6} {number:>11} {elapsed:>10.2f} {cpu:>6.2f} {1000 * cpu / count:>12.1f}", flush=True)


if __name__ == "__main__":
    main()

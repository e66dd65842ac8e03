"""Measures what the controller needs for a trial of many ranks: its processor time and memory, the time to start and to
stop, and whether a line is lost.

python bench/controller.py [--sizes 10x3,100x25,1000x250,4096x512] [--seconds 10]

Everything at the controller is real: the callback server, the connections, the event reader, the supervision of the
trial, the logs and the journal. The hosts are played by one other process (simulated_hosts.py), whose ranks send
what real ones send: greetings, a heartbeat and a log line a second, step times, results, exits. Each size gets a
process of its own. The program ends with 1 if a line is lost, or if a trial of 1,000 ranks needs a core or 1 GiB.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from trainscale.cluster.hosts import HostAccess
from trainscale.launch.launchers.callback import CallbackEndpoint, CallbackLauncher
from trainscale.launch.trial.state import TrialState
from trainscale.launch.trial.trial import TrialSettings, supervise_trial
from trainscale.record.journal import LOGS, open_journal, read_trials
from trainscale.record.run import RunInfo
from trainscale.record.trial import TrialRecord
from trainscale.spec.config import Config, Trial
from trainscale.spec.devices import Host, Slot
from trainscale.worker.job import Device, Measure

_STEPS = 100
_OPEN_FILES = 1024  # the usual limit of a user
_MOST_CORES, _MOST_MIB, _LIMITED_RANKS = 1.0, 1024.0, 1000


class SimulatedHostsLauncher(CallbackLauncher):
    """Starts one program that plays all hosts."""

    name = "simulated"
    seconds = 10

    def command(self, hosts: Sequence[str], endpoint: CallbackEndpoint) -> list[str]:
        program = Path(__file__).with_name("simulated_hosts.py")
        return [sys.executable, str(program), str(len(hosts)), str(self.seconds), str(_STEPS)]

    def controller_address(self) -> str:
        return "127.0.0.1"


@dataclass
class Figures:
    ranks: int
    hosts: int
    start_seconds: float = 0.0  # until every rank has said hello
    stop_seconds: float = 0.0  # from the last result until everything is ended
    journal_seconds: float = 0.0  # for the record
    cpu_seconds: float = 0.0  # of the controller, for all of it
    cores: float = 0.0  # of the controller, while the ranks train
    peak_mib: float = 0.0
    lines_lost: int = 0
    problem: str = ""


class Clock:
    """Notes when the trial reaches its phases, as the display of a run would."""

    def __init__(self) -> None:
        self.began, self.cpu_began = time.monotonic(), time.process_time()
        self.trains: tuple[float, float] | None = None
        self.measured: tuple[float, float] | None = None

    def __call__(self, state: TrialState) -> None:
        now = (time.monotonic(), time.process_time())
        if self.trains is None and all(rank.hello for rank in state.ranks):
            self.trains = now
        if self.trains is not None and self.measured is None:
            _ = state.slowest_worker  # what the display shows
            if state.is_measured:
                self.measured = now


def measure(ranks: int, host_count: int, seconds: int, open_files: int) -> Figures:
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_files, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    config = Config("torch", "mnist", 32, "allreduce", 28, 10)
    trial = Trial(config, ranks, 0)
    hosts = [Host(f"10.1.{number // 250}.{number % 250 + 1}", f"host{number}")
             for number in range(host_count)]  # fmt: skip
    slots = [Slot(hosts[rank * host_count // ranks], Device()) for rank in range(ranks)]
    launcher = SimulatedHostsLauncher(HostAccess(hosts=tuple(hosts)))
    launcher.seconds = seconds
    settings = TrialSettings(Measure(10, _STEPS), 1, {"torch": "python3"}, 600.0, 300.0)
    figures = Figures(ranks, host_count)
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "run"
        with open_journal(directory, RunInfo({"bench": "controller"})) as journal:
            clock = Clock()
            record = supervise_trial(trial, slots, replace(settings, logs=journal.directory / LOGS), launcher, clock)
            ended = time.monotonic()
            journal.append(record)
            figures.journal_seconds = time.monotonic() - ended
        figures.cpu_seconds = time.process_time() - clock.cpu_began
        figures.lines_lost = _lost_lines(record, directory, ranks, seconds)
    if clock.trains and clock.measured:
        figures.start_seconds = clock.trains[0] - clock.began
        figures.stop_seconds = ended - clock.measured[0]
        figures.cores = (clock.measured[1] - clock.trains[1]) / (clock.measured[0] - clock.trains[0])
    figures.peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    figures.problem = record.failure.message if record.failure else ""
    return figures


def _lost_lines(record: TrialRecord, directory: Path, ranks: int, seconds: int) -> int:
    """Count event lines and log lines that did not arrive, and step times that the journal does not have."""
    (stored,) = read_trials(directory)
    step_times = sum(len(rank.step_seconds) for rank in stored.ranks)
    log_lines = sum(len(path.read_text().splitlines()) for path in (directory / "logs").glob("*.log"))
    return len(record.notes) + abs(ranks * _STEPS - step_times) + abs(ranks * seconds - log_lines)


def measure_in_process(size: str, options: argparse.Namespace) -> Figures:
    command = [sys.executable, __file__, "--one", size]
    command += ["--seconds", str(options.seconds), "--open-files", str(options.open_files)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return Figures(**json.loads(done.stdout))


_COLUMNS = "{:>6} {:>6} {:>8} {:>7} {:>8} {:>6} {:>7} {:>9} {:>11} {:>9}"


def print_row(figures: Figures) -> None:
    milliseconds = 1000 * figures.cpu_seconds / figures.ranks
    print(
        _COLUMNS.format(
            figures.ranks, figures.hosts, f"{figures.start_seconds:.2f}", f"{figures.stop_seconds:.2f}",
            f"{figures.journal_seconds:.2f}", f"{figures.cpu_seconds:.2f}", f"{figures.cores:.3f}",
            f"{milliseconds:.2f}", f"{figures.peak_mib:.0f}", figures.lines_lost,
        ),
        figures.problem,
        flush=True,
    )  # fmt: skip


def print_growth(all_figures: Sequence[Figures]) -> None:
    """Print by what factor each figure grows, beside that of the ranks."""
    print("\ngrowth                ranks     start      stop       CPU    memory")
    for index, smaller in enumerate(all_figures[:2]):
        for larger in all_figures[index + 1 :]:
            pairs = [
                (larger.ranks, smaller.ranks),
                (larger.start_seconds, smaller.start_seconds),
                (larger.stop_seconds, smaller.stop_seconds),
                (larger.cpu_seconds, smaller.cpu_seconds),
                (larger.peak_mib, smaller.peak_mib),
            ]
            factors = "".join(f"{value / base if base else 0:>9.1f}×" for value, base in pairs)
            print(f"{smaller.ranks:>5} → {larger.ranks:<5} {factors}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="10x3,100x25,1000x250,4096x512", help="RANKSxHOSTS, separated by commas")
    parser.add_argument("--seconds", type=int, default=10, help="how long the ranks train")
    parser.add_argument("--open-files", type=int, default=_OPEN_FILES, help="limit of the controller's open files")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        ranks, hosts = map(int, options.one.split("x"))
        print(json.dumps(asdict(measure(ranks, hosts, options.seconds, options.open_files))))
        return 0
    header = ("ranks", "hosts", "start s", "stop s", "record s", "CPU s", "cores", "ms/rank", "peak MiB", "lost")
    print(_COLUMNS.format(*header))
    all_figures = []
    for size in options.sizes.split(","):
        all_figures.append(measure_in_process(size, options))
        print_row(all_figures[-1])
    print_growth(all_figures)
    is_wrong = any(figures.lines_lost or figures.problem for figures in all_figures)
    limited = [figures for figures in all_figures if figures.ranks <= _LIMITED_RANKS]
    return int(is_wrong or any(f.cores >= _MOST_CORES or f.peak_mib >= _MOST_MIB for f in limited))


if __name__ == "__main__":
    sys.exit(main())

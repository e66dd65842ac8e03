"""``runscalabilitytest``: the command of the older scripts, with all their flags and files.

It prints the equivalent ``trainscale run`` command, then runs it.
"""

import shlex
import sys
from argparse import Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from ..cluster.aws_template import find_instance_type
from ..errors import InputError
from ..record.files import write_atomically
from ..runs import Run
from ..spec.choices import split_model
from ..worker import models
from . import guard
from .parser import Parser

_MODELS = ("alexnet", "inceptionv3")
_WORKER = "deeplearning-worker"  # the host names that they looked for
_HOST_NAMES = Path("/etc/hosts")
_NODES = "nodes"
_EPILOG = """After -- any option of trainscale run may follow, such as: -- --steps 20 --repeats 1
The same command again continues where it stopped. Earlier files are kept under another name."""

# The flags of `trainscale run`, and the names of ours under which their values are.
_FLAGS = {
    "--models": "models",
    "--hosts": "hosts",
    "--hosts-count": "hosts_count",
    "-g": "gpu_per_host",
    "-b": "batch_size",
    "-r": "remote_dir",
    "-x": "max_gpu",
    "--frameworks": "frameworks",
    "--strategies": "strategies",
}


def main(argv: list[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    return guard(argv, lambda: _main(argv))


def _main(argv: list[str]) -> int:
    from . import run

    end = argv.index("--") if "--" in argv else len(argv)
    today, typed_names, notes = translate(_read(argv[:end]), argv[end + 1 :], _find_hosts_file)
    for note in notes:
        print(note)
    print(f"trainscale {shlex.join(['run', *today])}", flush=True)
    return run.main(today, lambda measured: _write_files(measured, typed_names))


def _read(argv: list[str]) -> Namespace:
    parser = Parser(
        "",
        "Measure how training scales over GPUs and hosts, as the scripts of this name did.",
        prog="runscalabilitytest",
        usage="runscalabilitytest [options] [-- options of trainscale run]",
        epilog=_EPILOG,
        formatter_class=RawDescriptionHelpFormatter,
        conflict_handler="resolve",  # -h means hosts here; only --help shows the help
    )
    add = partial(parser.add, action="append")
    add("-m --models --model", "LIST", "networks, each NAME or NAME:BATCH (default: alexnet,inceptionv3)")
    hosts = "a file, one host per line: ADDRESS [SSH_ALIAS] (default: those of this cluster, else this machine)"
    add("-h --hosts --nodes_file --nodes-file", "FILE", hosts)
    add("-n --hosts_count --hosts-count", "N", "use only the first N hosts (default: all)")
    gpus = "number of GPUs to use on each host (default: all)"
    add("-g --gpu_per_host --gpu-per-host --gpu_per_machine --gpu-per-machine", "N", gpus)
    batch = "images per GPU, for networks named without a batch (default: by GPU)"
    add("-b --batch_size --batch-size", "N", batch)
    folder = "folder on the hosts into which code is copied (default: /tmp)"
    add("-r --remote_dir --remote-dir", "DIR", folder)
    add("-x --max_gpu --max-gpu", "N", "end of the ladder of GPU counts 1, 2, 4, … (default: all GPUs)")
    add("--frameworks --framework", "LIST", "frameworks, as for trainscale run (default: torch)")
    strategies = "strategies, as for trainscale run (default: ps:each, a parameter server on every host)"
    add("--strategies --strategy", "LIST", strategies)
    kind = "EC2 instance type that sets the GPUs per host and the batches (default: what the hosts have)"
    add("-t --ec2_instance_type --ec2-instance-type", "TYPE", kind)
    options = parser.read(argv)
    for name, values in vars(options).items():
        if isinstance(values, list):
            if len(values) > 1 and name not in ("models", "frameworks", "strategies"):
                given = f"given {len(values)} times, with {' and '.join(values)}"
                raise InputError(f"--{name}: {given}; valid: once")
            setattr(options, name, ",".join(values))
    return options


def translate(
    options: Namespace, run_options: Sequence[str], find_hosts_file: Callable[[], tuple[str, str] | None]
) -> tuple[list[str], dict[str, str], list[str]]:
    """Return the same command of today, what was typed for each model, and lines to print first.

    ``find_hosts_file`` returns a file and its source.
    """
    given = {argument.partition("=")[0] for argument in run_options}
    kind = find_instance_type(options.ec2_instance_type, "-t") if options.ec2_instance_type else None
    listed = (options.models or ",".join(_MODELS)).split(",")
    names = [name.strip() for name in listed if name.strip()]
    if not names:
        valid = "NAME or NAME:BATCH, such as Inceptionv3:16,Alexnet:256"
        raise InputError(f"-m: the list is empty; valid: {valid}")
    entries, typed_names, notes = [], {}, []
    for text in names:
        name, batch = split_model(text)
        known = models.resolve(name)
        typed_names[known.name if known else name] = name.lower()
        takes_kind_batch = batch is None and not options.batch_size
        kind_batch = kind.batches.get(known.name) if kind and known and takes_kind_batch else None
        entries.append(f"{text}:{kind_batch}" if kind_batch else text)
    values = {**vars(options), "models": ",".join(entries)}
    if not options.hosts and not given & {"--hosts", "-H"}:
        alone = "none named, so this machine alone (-h FILE names some)"
        values["hosts"], source = find_hosts_file() or (None, alone)
        notes.append(f"hosts: {source}")
    if kind and kind.gpus and not options.gpu_per_host:
        values["gpu_per_host"] = str(kind.gpus)
    if not options.strategies and not given & {"--strategies", "--strategy"}:
        # As the older scripts, even on a single host.
        values["strategies"] = "ps" if "--servers" in given else "ps:each"
    argv = []
    for flag, name in _FLAGS.items():
        if values[name] is not None:
            argv += [flag, values[name]]
    return [*argv, *run_options], typed_names, notes


def _find_hosts_file() -> tuple[str, str] | None:
    """Find a cluster of `trainscale cluster`, or one with the host names of the older scripts."""
    from ..cluster.aws import NODES_FILE

    if NODES_FILE.is_file():
        return str(NODES_FILE), f"those of this cluster, {NODES_FILE}"
    try:
        lines = _HOST_NAMES.read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    text = "".join(f"{line}\n" for line in lines if _WORKER in line.partition("#")[0])
    if not text:
        return None
    _keep_earlier(Path(_NODES), text)
    write_atomically(Path(_NODES), text)
    return _NODES, f"the {_WORKER}s of {_HOST_NAMES}, written to {_NODES}"


def _write_files(run: Run, typed_names: dict[str, str]) -> None:
    from ..report.outputs import list_summary_lines, make_original_files

    files = make_original_files(run.series, typed_names)
    for name, text in files.items():
        _keep_earlier(Path(name), text)
        write_atomically(Path(name), text)
    print("\n".join(list_summary_lines(run.series, list(files))))


def _keep_earlier(path: Path, text: str) -> None:
    """Append a number to the name of an earlier file with other content."""
    if not path.exists() or path.read_bytes() == text.encode():
        return
    number = 1
    while (kept := path.with_name(f"{path.name}.{number}")).exists():
        number += 1
    path.rename(kept)
    print(f"the earlier {path} is now {kept}")


if __name__ == "__main__":
    sys.exit(main())

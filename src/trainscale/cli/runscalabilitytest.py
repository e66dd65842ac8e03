"""``runscalabilitytest``: the command of the older scripts, with both generations of its flags, and their files. Says
what it means in today's words, then measures as ``trainscale run`` does.
"""

from __future__ import annotations

import shlex
import sys
from argparse import Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..cluster.aws.instances import Instance, instance
from ..errors import InputError
from ..record.files import write_atomically
from ..record.journal import Journal
from ..record.parity import read_parity
from ..spec.choices import split_model
from ..worker import models
from . import guard
from .parser import Parser

_LISTS = ("models", "frameworks", "strategies")
_MODELS = ("alexnet", "inceptionv3")
_STRATEGY = "ps:each"  # the older scripts had one parameter server on every host, also on a single one
_WORKER = "deeplearning-worker"  # what they looked for in the file of host names
_HOST_NAMES = Path("/etc/hosts")
_NODES = "nodes"

_EPILOG = """After -- any option of trainscale run, such as: -- --steps 20 --repeats 1
The same command again continues where it stopped; earlier files are kept under another name."""


def main(arguments: list[str] | None = None) -> int:
    words = sys.argv[1:] if arguments is None else arguments
    # What follows -- are options of trainscale run, so a --debug there counts as well.
    return guard([word for word in words if word != "--"], lambda: _main([word for word in words if word != "--debug"]))


def _main(words: list[str]) -> int:
    from . import run

    split = words.index("--") if "--" in words else len(words)
    options = _read(words[:split])
    meaning = translate(options, words[split + 1 :], _hosts_here)
    for note in meaning.notes:
        print(note)
    print(f"trainscale {shlex.join(['run', *meaning.words])}", flush=True)
    return run.main(meaning.words, lambda journal: _write(journal, meaning.typed))


def _read(words: list[str]) -> Namespace:
    """Flags to texts. Lists may be given in several flags; of anything else, two are one too many."""
    options = _parser().read(words)
    for name, values in vars(options).items():
        if isinstance(values, list):
            if len(values) > 1 and name not in _LISTS:
                raise InputError(f"--{name}: given {len(values)} times, with {' and '.join(values)}; valid: once")
            setattr(options, name, ",".join(values))
    return options


# fmt: off
def _parser() -> Parser:
    parser = Parser(
        "", "Measure how training scales over GPUs and hosts, as the scripts of this name did.",
        prog="runscalabilitytest", usage="runscalabilitytest [options] [-- options of trainscale run]", epilog=_EPILOG,
        formatter_class=RawDescriptionHelpFormatter,
        conflict_handler="resolve",  # -h was for hosts there; help is --help alone
    )

    def add(short: str, *longs: str, metavar: str, help_text: str) -> None:
        spellings = [spelling for long in longs for spelling in dict.fromkeys((long, long.replace("_", "-")))]
        flags = [*([short] if short else []), *(f"--{spelling}" for spelling in spellings)]
        parser.add_argument(*flags, dest=longs[0], metavar=metavar, help=help_text, action="append")

    add("-h", "hosts", "nodes_file", metavar="FILE",
        help_text="one host a line, ADDRESS [SSH_ALIAS] (default: those of the cluster, else this machine)")
    add("-m", "models", "model", metavar="LIST", help_text="NAME or NAME:BATCH (default: alexnet,inceptionv3)")
    add("-g", "gpu_per_host", "gpu_per_machine", metavar="N", help_text="GPUs to use on each host (default: all)")
    add("-b", "batch_size", metavar="N", help_text="images per GPU, for models without their own (default: by GPU)")
    add("-r", "remote_dir", metavar="DIR", help_text="where code is copied to on the hosts (default: /tmp)")
    add("-x", "max_gpu", metavar="N", help_text="end of the ladder 1, 2, 4, … (default: all)")
    add("-n", "hosts_count", metavar="N", help_text="use only the first N hosts (default: all)")
    add("-t", "ec2_instance_type", metavar="TYPE",
        help_text="take GPUs per host and batches from this type of EC2 instance (default: as the hosts are)")
    add("", "frameworks", "framework", metavar="LIST", help_text="as of trainscale run (default: torch)")
    add("", "strategies", "strategy", metavar="LIST",
        help_text="as of trainscale run (default: ps:each, one parameter server on every host)")
    return parser
# fmt: on


@dataclass(frozen=True)
class Meaning:
    """``words`` are for ``trainscale run``; ``typed`` is what the person called each model; ``notes`` come first."""

    words: list[str]
    typed: dict[str, str]
    notes: list[str]


def translate(options: Namespace, more: Sequence[str], hosts_here: Callable[[], tuple[str, str] | None]) -> Meaning:
    """``hosts_here``: a file with the hosts of the cluster that this is, and where it was found."""
    kind = instance(options.ec2_instance_type, "-t") if options.ec2_instance_type else None
    asked, typed = _models(options, kind)
    words = ["--models", asked]
    notes = []
    hosts = options.hosts
    if not hosts and not _given(more, "--hosts", "-H"):
        found = hosts_here()
        hosts = found[0] if found else None
        notes.append(f"hosts: {found[1]}" if found else "hosts: none named, so this machine alone (-h FILE names some)")
    for flag, value in (
        ("--hosts", hosts),
        ("--hosts-count", options.hosts_count),
        ("-g", options.gpu_per_host or (str(kind.gpus) if kind and kind.gpus else None)),
        ("-b", options.batch_size),
        ("-r", options.remote_dir),
        ("-x", options.max_gpu),
        ("--frameworks", options.frameworks),
        ("--strategies", _strategies(options, more)),
    ):
        if value is not None:
            words += [flag, value]
    return Meaning([*words, *more], typed, notes)


def _models(options: Namespace, kind: Instance | None) -> tuple[str, dict[str, str]]:
    """As one list, with the batches of the instance type where no other is given; and what each was called."""
    names = [name.strip() for name in (options.models or ",".join(_MODELS)).split(",") if name.strip()]
    if not names:
        raise InputError("-m: the list is empty; valid: NAME or NAME:BATCH, such as Inceptionv3:16,Alexnet:256")
    asked, typed = [], {}
    for text in names:
        name, batch = split_model(text)
        known = models.resolve(name)
        typed[known.name if known else name] = name.lower()
        own = kind.batches.get(known.name) if kind and known and batch is None and not options.batch_size else None
        asked.append(f"{text}:{own}" if own else text)
    return ",".join(asked), typed


def _strategies(options: Namespace, more: Sequence[str]) -> str | None:
    if options.strategies or _given(more, "--strategies", "--strategy"):
        return str(options.strategies) if options.strategies else None
    return "ps" if _given(more, "--servers") else _STRATEGY


def _given(words: Sequence[str], *flags: str) -> bool:
    return any(word.partition("=")[0] in flags for word in words)


def _hosts_here() -> tuple[str, str] | None:
    """Of a cluster that `trainscale cluster` made, or of one whose host names are as the older scripts knew them."""
    from ..cluster.aws.nodes import NODES_FILE

    if NODES_FILE.is_file():
        return str(NODES_FILE), f"those of this cluster, {NODES_FILE}"
    try:
        lines = [line for line in _HOST_NAMES.read_text().splitlines() if _WORKER in line.partition("#")[0]]
    except (OSError, UnicodeDecodeError):
        return None
    if not lines:
        return None
    _keep_earlier(Path(_NODES), text := "".join(f"{line}\n" for line in lines))
    write_atomically(Path(_NODES), text)
    return _NODES, f"the {_WORKER}s of {_HOST_NAMES}, written to {_NODES}"


def _write(journal: Journal, typed: dict[str, str]) -> None:
    from ..analyse.series import build_series
    from ..report.originals import original_files, summary

    series = build_series(journal.records, read_parity(journal.directory))
    files = original_files(series, typed)
    for name, text in files.items():
        _keep_earlier(Path(name), text)
        write_atomically(Path(name), text)
    print("\n".join(summary(series, list(files))))


def _keep_earlier(path: Path, text: str) -> None:
    """An earlier file with other content gets a number after its name: results are never thrown away here."""
    if not path.exists() or path.read_bytes() == text.encode():
        return
    number = 1
    while (kept := path.with_name(f"{path.name}.{number}")).exists():
        number += 1
    path.rename(kept)
    print(f"the earlier {path} is now {kept}")


if __name__ == "__main__":
    sys.exit(main())

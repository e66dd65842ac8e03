"""A ReFrame test that repeats a run and holds its throughput against the run that was exported."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence

from .base import TextExporter
from .stored_run import StoredRun
from .summary_lines import FAILED_TRIALS, SummaryLine, list_summary_lines

# ReFrame fails where a value is below the reference by more than this share. Repeats on a quiet machine differ by 2 %.
ALLOWED_LOSS = 0.05
_FLAGS = ["--summary-line", "--fresh"]

_HEAD = '''\
"""Written by ``trainscale export --to reframe``: repeats a run and holds its throughput against what was measured.

    reframe -c FILE -r
"""

import re

import reframe as rfm
import reframe.utility.sanity as sn
'''

_REFERENCES = """

# For each test and key: value, how much less is allowed, how much more is allowed, unit.
REFERENCES = {{
{tests}
}}
"""

_TEST = """

@rfm.simple_test
class {class_name}(rfm.RunOnlyRegressionTest):
    descr = {description}
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    executable = "trainscale"
    executable_opts = {options}
    reference = {{"*": REFERENCES["{class_name}"]}}

    @sanity_function
    def every_trial_has_a_result(self):
        return sn.assert_found(r"^{failed}: 0 trials$", self.stdout)

    @run_before("performance")
    def read_summary_lines(self):
        for key, (_, _, _, unit) in REFERENCES["{class_name}"].items():
            value = sn.extractsingle(rf"^{{re.escape(key)}}: (\\S+) ", self.stdout, 1, float)
            self.perf_variables[key] = sn.make_performance_function(value, unit)
"""


class ReframeExporter(TextExporter):
    name = "reframe"
    description = "a ReFrame test for each run: it repeats the run's command and fails where it is 5 % slower"

    def text(self, runs: Sequence[StoredRun]) -> str:
        names = _make_class_names(runs)
        references = "\n".join(_render_references(run, name) for run, name in zip(runs, names, strict=True))
        tests = [_render_test(run, name) for run, name in zip(runs, names, strict=True)]
        return "".join([_HEAD, _REFERENCES.format(tests=references), *tests])


def _render_test(run: StoredRun, class_name: str) -> str:
    return _TEST.format(
        class_name=class_name,
        description=json.dumps(f"trainscale: {run.name}"),
        options=json.dumps([*_list_arguments(run), *_FLAGS]),
        failed=FAILED_TRIALS,
    )


def _render_references(run: StoredRun, class_name: str) -> str:
    lines = [line for line in list_summary_lines(run.series, run.records) if line.key.endswith("_per_second")]
    return "\n".join([f'    "{class_name}": {{', *map(_render_reference, lines), "    },"])


def _list_arguments(run: StoredRun) -> list[str]:
    """Return the arguments of the command that began the run, as ReFrame writes them into a shell script."""
    arguments = shlex.split(run.info.read_provenance().command or "trainscale run")[1:]
    return [shlex.quote(argument) for argument in arguments if argument not in _FLAGS]


def _render_reference(line: SummaryLine) -> str:
    return f"        {json.dumps(line.key)}: ({line.value:.6g}, -{ALLOWED_LOSS:g}, None, {json.dumps(line.unit)}),"


def _make_class_names(runs: Sequence[StoredRun]) -> list[str]:
    """Return a valid and unique Python name for each run."""
    names: list[str] = []
    for run in runs:
        name_parts = re.findall(r"[A-Za-z0-9]+", run.name)
        name = "Trainscale" + "".join(word.capitalize() for word in name_parts)
        names.append(name if name not in names else f"{name}_{len(names) + 1}")
    return names

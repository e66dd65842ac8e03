"""What a run records about the C allocator of its processes."""

import pytest

from trainscale.record.run import RunInfo, collect_provenance
from trainscale.report.run_tables import make_machines_grid
from trainscale.worker.config import ALLOCATORS
from trainscale.worker.inspection.host import HostFacts, Machine

pytestmark = pytest.mark.processes

MACHINE = Machine("host", "a CPU", (0, 1), 1, 2**34, 2**34, (), "", 0.0, 0.0)


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GLIBC_TUNABLES", "LD_PRELOAD", *ALLOCATORS["tuned"]):
        monkeypatch.delenv(name, raising=False)


def test_the_setting_and_its_variables_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    tuned = collect_provenance(["run"], MACHINE, {})["allocator"]
    assert tuned == {"setting": "tuned", **ALLOCATORS["tuned"]}
    assert collect_provenance(["run"], MACHINE, {}, allocator="system")["allocator"] == {"setting": "system"}
    monkeypatch.setenv("MALLOC_TOP_PAD_", "1")
    monkeypatch.setenv("LD_PRELOAD", "libjemalloc.so.2")
    tuned = collect_provenance(["run"], MACHINE, {})["allocator"]
    assert (tuned["MALLOC_TOP_PAD_"], tuned["LD_PRELOAD"]) == ("1", "libjemalloc.so.2")
    assert tuned["MALLOC_TRIM_THRESHOLD_"] == ALLOCATORS["tuned"]["MALLOC_TRIM_THRESHOLD_"]
    hosts = {"far": HostFacts(MACHINE, {}, "", None, "python3", "3.11", {})}  # nor are they those of other hosts
    recorded = collect_provenance(["run"], MACHINE, {}, hosts, allocator="system")["allocator"]
    assert recorded == {"setting": "system"}


def test_the_table_of_machines_names_the_setting_and_says_nothing_about_runs_that_did_not_record_it() -> None:
    ((_, _, software),) = make_machines_grid(
        RunInfo({}, collect_provenance(["run"], MACHINE, {}, allocator="system"))
    ).rows
    assert software.endswith("C allocator: system")
    old = collect_provenance(["run"], MACHINE, {})
    del old["allocator"]
    ((_, _, software),) = make_machines_grid(RunInfo({}, old)).rows
    assert "allocator" not in software

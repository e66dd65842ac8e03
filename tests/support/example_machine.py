"""The machine on which the commands and files of the documentation are tried: 16 cores and 8 GPUs."""

from __future__ import annotations

from trainscale.cluster.hosts import find_local_devices
from trainscale.spec.choices import GIB
from trainscale.spec.devices import AvailableDevices
from trainscale.spec.experiment import Experiment
from trainscale.worker.inspection.host import Gpu, Machine

EIGHT_GPUS = tuple(Gpu(index, "NVIDIA A100-SXM4-80GB", 80 * GIB, "570") for index in range(8))
MACHINE = Machine("host", "a CPU", tuple(range(16)), 1, 64 * GIB, 60 * GIB, EIGHT_GPUS, "", 0.0, 0.0)


def find_example_devices(experiment: Experiment) -> AvailableDevices:
    return find_local_devices(MACHINE, experiment)

"""What bench/overhead.py measures: a network on a kind of device in one framework, as a trial of trainscale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trainscale.cluster.hosts import find_local_devices
from trainscale.launch.hosts import choose_pythons
from trainscale.spec.config import Trial
from trainscale.spec.experiment import Experiment
from trainscale.spec.plan import Plan, make_plan
from trainscale.worker.frameworks.catalog import FRAMEWORKS
from trainscale.worker.inspection.host import read_machine

GPU_AIM = 0.99
TORCH_AIM, AIM = 0.98, 0.97  # on the CPU: of PyTorch, and of the other frameworks


@dataclass(frozen=True)
class Case:
    framework: str
    device: str
    depth: int
    size: int
    batch: int
    warmup: int
    steps: int

    @classmethod
    def usual(cls, framework: str, device: str) -> Case:
        """Return ResNet-50 on a GPU, and ResNet-18 on small images on a CPU."""
        sizes = (50, 224, 256, 10, 100) if device == "cuda" else (18, 96, 8, 3, 20)
        return cls(framework, device, *sizes)

    @property
    def aim(self) -> float:
        if self.device == "cuda":
            return GPU_AIM
        return TORCH_AIM if self.framework == "torch" else AIM

    @property
    def python(self) -> str:
        return choose_pythons([self.framework], {})[self.framework]

    def describe(self) -> str:
        return f"ResNet-{self.depth}, {self.size} pixels, batch {self.batch} per process, {self.device}"

    def make_trial(self, processes: int) -> tuple[Plan, Trial]:
        """Return a trial on this machine, with the framework's usual strategy for several processes."""
        settings: dict[str, Any] = {"cores_per_device": 1}
        if self.device == "cuda":
            settings = {"precision": "bf16", "layout": "nhwc", "compile": FRAMEWORKS[self.framework].compiles}
        elif self.framework == "torch":
            settings["layout"] = "nchw"  # the layout of the bare script
        experiment = Experiment.of(
            models=(f"resnet{self.depth}:{self.batch}",),
            frameworks=(self.framework,),
            image_size=self.size,
            strategies=("local" if processes == 1 else FRAMEWORKS[self.framework].usual_strategy,),
            devices=(processes,),
            device=self.device,
            **settings,
        )
        plan = make_plan(experiment, find_local_devices(read_machine(), experiment))
        return plan, Trial(plan.configs[0], processes, repeat=0)

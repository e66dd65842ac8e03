"""Which frameworks exist, and which strategies, precisions and layouts each offers. One table, read by worker and
controller.

Nothing here imports a framework.
"""

from __future__ import annotations

from dataclasses import dataclass

STRATEGIES: dict[str, str] = {
    "local": "one device, no communication",
    "allreduce": "every worker holds the model; gradients are averaged among the workers",
    "ps": "synchronous parameter servers: workers send gradients, servers update and send weights",
    "ps-async": "asynchronous parameter servers: a server applies each gradient as it comes",
    "sharded": "parameters, gradients and optimizer state are split over the workers",
    "independent": "all workers run, nothing is exchanged: the upper bound",
}
WITH_SERVERS = ("ps", "ps-async")
PRECISIONS: dict[str, str] = {
    "fp32": "32-bit floats everywhere",
    "tf32": "32-bit floats, matrix units in TF32 (NVIDIA GPUs)",
    "bf16": "bfloat16 where it is safe, 32-bit weights",
    "fp16": "float16 where it is safe, 32-bit weights, loss scaling",
}
LAYOUTS: dict[str, str] = {"nchw": "channels first", "nhwc": "channels last"}


@dataclass(frozen=True)
class Framework:
    """``imports`` is the module that must exist; ``adapter`` the class in this package that speaks to it."""

    name: str
    title: str
    imports: str
    adapter: str
    strategies: tuple[str, ...]
    precisions: tuple[str, ...]
    layouts: tuple[str, ...]
    libraries: tuple[str, ...] = ()  # prefixes of model references, e.g. torchvision:resnet50
    compiles: bool = False
    install: str = ""

    def refuses(
        self, strategy: str, precision: str, layout: str, compiled: bool, device: str, ranks_per_gpu: int
    ) -> str | None:
        """Why a combination cannot be had, or None. The only place that says no."""
        if strategy not in self.strategies:
            return f"{self.name} has no strategy {strategy!r}; it has {', '.join(self.strategies)}"
        if precision not in self.precisions:
            return f"{self.name} has no precision {precision!r}; it has {', '.join(self.precisions)}"
        if layout not in self.layouts:
            return f"{self.name} has no layout {layout!r}; it has {', '.join(self.layouts)}"
        if compiled and not self.compiles:
            return f"{self.name} has no compiler; leave --compile out"
        if precision == "tf32" and device == "cpu":
            return "precision 'tf32' needs an NVIDIA GPU; a CPU device has fp32, bf16, fp16"
        if precision == "fp16" and strategy in WITH_SERVERS:
            return f"strategy {strategy!r} has no precision 'fp16' (loss scaling skips steps, servers cannot); use bf16"
        if ranks_per_gpu > 1 and device == "cpu":
            return f"ranks per GPU {ranks_per_gpu}: the devices are CPU cores; valid: 1"
        if ranks_per_gpu > 1 and strategy == "sharded":
            return "strategy 'sharded' needs a GPU for each rank (gloo's collectives on shared GPUs crash FSDP2)"
        return None


FRAMEWORKS: dict[str, Framework] = {
    "torch": Framework(
        name="torch",
        title="PyTorch",
        imports="torch",
        adapter="torch.adapter:TorchAdapter",
        strategies=tuple(STRATEGIES),
        precisions=tuple(PRECISIONS),
        layouts=tuple(LAYOUTS),
        libraries=("torchvision", "timm"),
        compiles=True,
        install="pip install 'trainscale[torch]'",
    ),
}

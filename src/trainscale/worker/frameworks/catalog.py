"""The frameworks, and the strategies, precisions and layouts that each offers. Worker and controller
read this one table, and third parties add to it (plugins.py). Nothing here imports a framework.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..config import Config
    from ..job import Job, PluginReference
    from .base import Adapter

STRATEGIES: dict[str, str] = {
    "local": "one device, no communication",
    "allreduce": "every worker holds the model; gradients are averaged among the workers",
    "ps": "synchronous parameter servers: workers send gradients, servers update and send weights",
    "ps-async": "asynchronous parameter servers: a server applies each gradient as it comes",
    "sharded": "parameters, gradients and optimizer state are split over the workers",
    "independent": "all workers run, nothing is exchanged: the upper bound",
}
WITH_SERVERS = ("ps", "ps-async")
# A framework's default strategy is the first of these that it offers.
_USUAL = ("allreduce", "ps", "local")
PRECISIONS: dict[str, str] = {
    "fp32": "32-bit floats everywhere",
    "tf32": "32-bit floats, matrix units in TF32 (NVIDIA GPUs)",
    "bf16": "bfloat16 where it is safe, 32-bit weights",
    "fp16": "float16 where it is safe, 32-bit weights, loss scaling",
}
LAYOUTS: dict[str, str] = {"nchw": "channels first", "nhwc": "channels last"}


@dataclass(frozen=True)
class Framework:
    """``imports`` are the modules that must exist. ``engines`` names what does the work of a strategy.

    ``adapter``, ``environment`` and ``strategy_adapters`` are "module:name"; a module that begins
    with a dot is in this package.
    """

    name: str
    title: str
    imports: tuple[str, ...]
    adapter: str
    engines: dict[str, str] = field(hash=False)
    precisions: tuple[str, ...]
    layouts: Mapping[str, tuple[str, ...]] = field(hash=False)  # by kind of device, the fastest first
    environment: str = ""
    libraries: tuple[str, ...] = ()  # prefixes of model references, e.g. torchvision:resnet50
    compiles: bool = False
    shares_gpus: tuple[str, ...] = ("local", "independent")  # strategies whose ranks may share a GPU
    scheduler: bool = False  # parameter servers need a scheduler, which is a process of its own
    # Whether a worker of asynchronous servers reads the weights before its step, not after a push.
    pulls_before_step: bool = False
    update_count_error: float = 0.005  # relative, of counting them by weight decay in 32-bit numbers
    install: str = ""
    plugin: PluginReference | None = None
    strategy_adapters: Mapping[str, str] = field(default_factory=dict, hash=False)  # where it is not ``adapter``

    @property
    def usual_strategy(self) -> str:
        return next(name for name in (*_USUAL, *self.engines) if name in self.engines)

    def load(self, job: Job | None) -> type[Adapter]:
        """Set the framework's environment variables, import it, and return its adapter's class."""
        if self.environment:
            variables: dict[str, str] = _import_reference(self.environment)(self.name, job)
            os.environ.update(variables)
        strategy = job.config.strategy if job is not None else ""
        reference = self.strategy_adapters.get(strategy, self.adapter)
        adapter: type[Adapter] = _import_reference(reference)
        return adapter

    def refuses(self, config: Config) -> str | None:
        """Return why this framework cannot do what a config says, or None."""
        strategy, precision = config.strategy, config.precision
        layout, device = config.layout, config.device
        if strategy not in self.engines:
            return f"{self.name} has no strategy {strategy!r}; it has {', '.join(self.engines)}"
        if device not in self.layouts:
            return f"{self.name} does not run on device {device!r}; it runs on {', '.join(self.layouts)}"
        if precision not in self.precisions:
            return f"{self.name} has no precision {precision!r}; it has {', '.join(self.precisions)}"
        if layout not in self.layouts[device]:
            return f"{self.name} has no layout {layout!r} on {device}; it has {', '.join(self.layouts[device])}"
        if config.compile and not self.compiles:
            return f"{self.name} has no compiler; leave --compile out"
        if precision == "tf32" and device == "cpu":
            return "precision 'tf32' needs an NVIDIA GPU; a CPU device has fp32, bf16, fp16"
        if precision == "fp16" and strategy in WITH_SERVERS:
            reason = "loss scaling skips steps, servers cannot"
            return f"strategy {strategy!r} has no precision 'fp16' ({reason}); use bf16"
        if config.ranks_per_gpu > 1 and device == "cpu":
            return f"ranks per GPU {config.ranks_per_gpu}: the devices are CPU cores; valid: 1"
        if config.ranks_per_gpu > 1 and strategy not in self.shares_gpus:
            shared = f"GPUs can be shared with {', '.join(self.shares_gpus)}"
            return f"strategy {strategy!r} of {self.name} needs a GPU for each rank; {shared}"
        return None


def _import_reference(reference: str) -> Any:
    module, _, name = reference.partition(":")
    return getattr(importlib.import_module(module, __package__), name)


_BOTH_LAYOUTS = {"cpu": ("nhwc", "nchw"), "cuda": ("nhwc", "nchw")}
_TENSORFLOW_ALLREDUCE = "MultiWorkerMirroredStrategy"

_ALL = (
    Framework(
        name="torch",
        title="PyTorch",
        imports=("torch",),
        adapter=".torch.adapter:TorchAdapter",
        strategy_adapters={
            "allreduce": ".torch.adapter:TorchAllreduceAdapter",
            "sharded": ".torch.adapter:TorchShardedAdapter",
            "ps": ".torch.parameter_server:TorchParameterServerAdapter",
            "ps-async": ".torch.parameter_server:TorchParameterServerAdapter",
        },
        environment=".environments:make_torch_variables",
        engines={
            "local": "eager",
            "allreduce": "DistributedDataParallel",
            "ps": "own servers over torch.distributed",
            "ps-async": "own servers over torch.distributed",
            "sharded": "FSDP2 fully_shard",
            "independent": "eager",
        },
        precisions=tuple(PRECISIONS),
        layouts=_BOTH_LAYOUTS,
        libraries=("torchvision", "timm"),
        compiles=True,
        shares_gpus=("local", "allreduce", "ps", "ps-async", "independent"),  # gloo on shared GPUs crashes FSDP2
    ),
    Framework(
        name="tensorflow",
        title="TensorFlow",
        imports=("tensorflow",),
        adapter=".tensorflow.adapter:TensorFlowAdapter",
        strategy_adapters={
            "allreduce": ".tensorflow.adapter:TensorFlowAllreduceAdapter",
            "ps": ".tensorflow.parameter_server:ParameterServerAdapter",
            "ps-async": ".tensorflow.parameter_server:ParameterServerAdapter",
        },
        environment=".environments:make_tensorflow_variables",
        engines={
            "local": "tf.function",
            "allreduce": _TENSORFLOW_ALLREDUCE,
            "ps": "SyncReplicasOptimizer, between-graph",
            "ps-async": "MomentumOptimizer, between-graph",
            "independent": "tf.function",
        },
        precisions=("fp32", "tf32", "bf16"),
        layouts=_BOTH_LAYOUTS,
        compiles=True,
        pulls_before_step=True,
    ),
    Framework(
        name="jax",
        title="JAX",
        imports=("jax",),
        adapter=".jax.adapter:JaxAdapter",
        strategy_adapters={
            "allreduce": ".jax.adapter:JaxAllreduceAdapter",
            "sharded": ".jax.adapter:JaxShardedAdapter",
        },
        environment=".environments:make_jax_variables",
        engines={
            "local": "jit",
            "allreduce": "jit over a mesh of processes, shard_map",
            "sharded": "jit over a mesh, parameters sharded",
            "independent": "jit",
        },
        precisions=("fp32", "tf32", "bf16"),
        layouts=_BOTH_LAYOUTS,
        compiles=True,
    ),
    *(
        Framework(
            name=f"keras-{backend}",
            title=f"Keras on {title}",
            imports=("keras", backend),
            adapter=f".keras.{backend}_backend:Keras{title}Adapter",
            strategy_adapters={"allreduce": f".keras.{backend}_backend:Keras{title}AllreduceAdapter"},
            environment=".environments:make_keras_variables",
            engines={"local": local, "allreduce": allreduce, "independent": local},
            precisions=("fp32", "tf32", "bf16"),
            layouts=layouts,
            libraries=("keras",),
            compiles=backend != "torch",
        )
        for backend, title, local, allreduce, layouts in (
            ("jax", "JAX", "stateless_call, jit", "keras.distribution, shard_map",
             _BOTH_LAYOUTS),
            ("tensorflow", "TensorFlow", "tf.function", _TENSORFLOW_ALLREDUCE,
             {"cpu": ("nhwc",), "cuda": ("nhwc", "nchw")}),
            # In channels-last, Keras transposes the images of every convolution for PyTorch, and back.
            ("torch", "PyTorch", "eager", "DistributedDataParallel",
             {"cpu": ("nchw", "nhwc"), "cuda": ("nchw", "nhwc")}),
        )
    ),
    Framework(
        name="mxnet",
        title="MXNet",
        imports=("mxnet",),
        adapter=".mxnet.adapter:MxnetAdapter",
        environment=".environments:make_mxnet_variables",
        engines={
            "local": "hybridized Gluon, Trainer",
            "ps": "kvstore dist_sync (ps-lite)",
            "ps-async": "kvstore dist_async (ps-lite)",
            "independent": "hybridized Gluon, Trainer",
        },
        precisions=("fp32",),
        layouts={"cpu": ("nchw",), "cuda": ("nchw",)},
        libraries=("gluon",),
        shares_gpus=("local", "ps", "ps-async", "independent"),
        scheduler=True,
        update_count_error=0.05,  # its softmax is less precise: 108.3 of 110 updates were counted
    ),
)  # fmt: skip

FRAMEWORKS: dict[str, Framework] = {
    framework.name: replace(framework, install=f"trainscale env create {framework.name}") for framework in _ALL
}


def explain_foreign(model: str) -> str:
    """Return why the numbers of a foreign network cannot be computed without its framework."""
    library = model.partition(":")[0]
    is_of_library = any(library in framework.libraries for framework in FRAMEWORKS.values())
    origin = f"a network of {library}" if is_of_library else "your own network"
    return f"it is {origin}, and only the networks that trainscale defines are computed a second time"

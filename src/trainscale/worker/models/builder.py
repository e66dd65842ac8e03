"""Writes a graph layer by layer and infers every shape. `graph.py` explains the layer kinds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, Union

from .graph import BATCH_NORM_EPS, Graph, Head, Layer, ShapeError

Size = Union[int, tuple[int, int]]  # one number for both axes, or (height, width)

# A layer without a name gets this stem, or its kind, and a number within the scope.
_STEMS = {"batch_norm": "bn", "max_pool": "pool", "avg_pool": "pool", "global_avg_pool": "pool", "dense": "fc"}


class Builder:
    """Collects the layers of one network, named like "stage1.block2.conv3", until `finish`."""

    def __init__(self, name: str, channels: int, image_size: int, classes: int) -> None:
        if image_size < 1:
            raise ValueError(f"{name}: an image size must be at least 1, not {image_size}")
        if classes < 2:
            raise ValueError(f"{name}: a classifier needs at least 2 classes, not {classes}")
        self.name, self.image_size, self.classes = name, image_size, classes
        self._layers: list[Layer] = []
        self._identifiers: set[str] = set()
        self._scopes: list[str] = []
        self._counts: dict[str, int] = {}
        self.input = self._append("input", [], (channels, image_size, image_size), "input")

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Prefix the names of layers that are made inside. Scopes nest."""
        self._scopes.append(name)
        try:
            yield
        finally:
            self._scopes.pop()

    def conv(
        self,
        x: Layer,
        filters: int,
        kernel: Size = 3,
        stride: Size = 1,
        padding: Size = 0,
        bias: bool = True,
        name: str | None = None,
    ) -> Layer:
        return self._slide("conv", x, filters, (kernel, stride, padding), name, filters=filters, bias=bias)

    def batch_norm(self, x: Layer, eps: float = BATCH_NORM_EPS, name: str | None = None) -> Layer:
        name = self._make_full_name("batch_norm", name)
        self._check_map_size(x, name)
        return self._append("batch_norm", [x], x.shape, name, eps=eps)

    def relu(self, x: Layer, name: str | None = None) -> Layer:
        return self._append("relu", [x], x.shape, self._make_full_name("relu", name))

    def max_pool(self, x: Layer, kernel: Size, stride: Size, padding: Size = 0, name: str | None = None) -> Layer:
        return self._slide("max_pool", x, x.shape[0], (kernel, stride, padding), name)

    def avg_pool(
        self,
        x: Layer,
        kernel: Size,
        stride: Size,
        padding: Size = 0,
        count_padding: bool = True,
        name: str | None = None,
    ) -> Layer:
        window = (kernel, stride, padding)
        return self._slide("avg_pool", x, x.shape[0], window, name, count_padding=count_padding)

    def global_avg_pool(self, x: Layer, name: str | None = None) -> Layer:
        name = self._make_full_name("global_avg_pool", name)
        self._check_map_size(x, name)
        return self._append("global_avg_pool", [x], x.shape[:1], name)

    def flatten(self, x: Layer, name: str | None = None) -> Layer:
        name = self._make_full_name("flatten", name)
        height, width = self._check_map_size(x, name)
        return self._append("flatten", [x], (x.shape[0] * height * width,), name)

    def dense(self, x: Layer, features: int, bias: bool = True, name: str | None = None) -> Layer:
        name = self._make_full_name("dense", name)
        if len(x.shape) != 1:
            given = f"{x.name} gives {_format_shape(x.shape)}"
            raise ShapeError(f"{self.name}: layer {name} needs a vector, {given}; flatten it")
        return self._append("dense", [x], (features,), name, features=features, bias=bias)

    def dropout(self, x: Layer, rate: float, name: str | None = None) -> Layer:
        return self._append("dropout", [x], x.shape, self._make_full_name("dropout", name), rate=rate)

    def concat(self, parts: Sequence[Layer], name: str | None = None) -> Layer:
        name = self._make_full_name("concat", name)
        if len({part.shape[1:] for part in parts}) != 1:
            given = _describe_outputs(parts)
            raise ShapeError(f"{self.name}: layer {name} cannot join maps of different sizes: {given}")
        channels = sum(part.shape[0] for part in parts)
        return self._append("concat", parts, (channels, *parts[0].shape[1:]), name)

    def add(self, a: Layer, b: Layer, name: str | None = None) -> Layer:
        name = self._make_full_name("add", name)
        if a.shape != b.shape:
            given = _describe_outputs([a, b])
            raise ShapeError(f"{self.name}: layer {name} cannot add different shapes: {given}")
        return self._append("add", [a, b], a.shape, name)

    def conv_bn_relu(
        self,
        x: Layer,
        filters: int,
        kernel: Size = 3,
        stride: Size = 1,
        padding: Size = 0,
        bias: bool = False,
        eps: float = BATCH_NORM_EPS,
    ) -> Layer:
        """Add three layers. A bias is not needed, because batch norm subtracts the mean."""
        return self.relu(self.batch_norm(self.conv(x, filters, kernel, stride, padding, bias), eps))

    def finish(self, main: Layer, auxiliary: tuple[Layer, float] | None = None) -> Graph:
        """Return the graph. All layers must lead to a head. `auxiliary` is another and its loss weight."""
        ends = [(main, 1.0), auxiliary] if auxiliary else [(main, 1.0)]
        heads = tuple(Head(layer.name, weight) for layer, weight in ends)
        used = {head.layer for head in heads}
        used.update(name for layer in self._layers for name in layer.inputs)
        for layer in self._layers:
            if layer.name not in used:
                raise ValueError(f"{self.name}: nothing uses layer {layer.name}, and it is no head")
        for head, _ in ends:
            if head.shape != (self.classes,):
                given = f"head {head.name} gives {_format_shape(head.shape)}"
                raise ShapeError(f"{self.name}: {given}, not one value for each of {self.classes} classes")
        return Graph(self.name, tuple(self._layers), heads, self.image_size, self.classes)

    def _append(self, kind: str, inputs: Sequence[Layer], shape: tuple[int, ...], name: str, **options: Any) -> Layer:
        layer = Layer(name, kind, tuple(x.name for x in inputs), MappingProxyType(options), shape)
        if not layer.identifier.isidentifier():
            raise ValueError(f"{self.name}: layer name {name!r} may hold letters, digits, '_' and '.' only")
        if layer.identifier in self._identifiers:
            raise ValueError(f"{self.name}: two layers are called {name!r} ('.' and '_' count as the same)")
        self._identifiers.add(layer.identifier)
        self._layers.append(layer)
        return layer

    def _make_full_name(self, kind: str, name: str | None) -> str:
        if name is None:
            stem = ".".join([*self._scopes, _STEMS.get(kind, kind)])
            self._counts[stem] = self._counts.get(stem, 0) + 1
            return f"{stem}{self._counts[stem]}"
        return ".".join([*self._scopes, name])

    def _slide(
        self, kind: str, x: Layer, channels: int, window: tuple[Size, Size, Size], name: str | None, **options: Any
    ) -> Layer:
        """Append a layer that slides a window, of this kernel, stride and padding, over a map."""
        kernel, stride, padding = ((size, size) if isinstance(size, int) else size for size in window)
        name = self._make_full_name(kind, name)
        size = self._check_map_size(x, name)
        height, width = ((size[i] + 2 * padding[i] - kernel[i]) // stride[i] + 1 for i in (0, 1))
        if height < 1 or width < 1:
            raise ShapeError(
                f"{self.name}: an image of {self.image_size}×{self.image_size} is too small: by layer {name} "
                f"it has shrunk to {_format_shape(size)}, less than the {_format_shape(kernel)} window there. "
                "Give a larger --image-size."
            )
        pairs = {"kernel": kernel, "stride": stride, "padding": padding}
        return self._append(kind, [x], (channels, height, width), name, **pairs, **options)

    def _check_map_size(self, x: Layer, name: str) -> tuple[int, int]:
        if len(x.shape) != 3:
            given = f"{x.name} gives {_format_shape(x.shape)}"
            raise ShapeError(f"{self.name}: layer {name} needs a map (channels × height × width), {given}")
        return x.shape[1], x.shape[2]


def _format_shape(shape: Sequence[int]) -> str:
    return "×".join(str(size) for size in shape)


def _describe_outputs(layers: Sequence[Layer]) -> str:
    return ", ".join(f"{layer.name} gives {_format_shape(layer.shape)}" for layer in layers)

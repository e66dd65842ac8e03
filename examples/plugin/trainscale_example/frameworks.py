"""The framework ``numpy`` as trainscale's catalogue lists it. Every command reads this: it must not import the
framework, only name the adapter, which a process that trains imports.
"""

from __future__ import annotations

from trainscale.worker.frameworks.catalog import Framework

_ENGINE = "matrix products of numpy's BLAS"

NUMPY = Framework(
    name="numpy",
    title="NumPy",
    imports=("numpy",),
    adapter="trainscale_example.adapter:NumpyAdapter",
    engines={"local": _ENGINE, "independent": _ENGINE},
    precisions=("fp32",),
    layouts={"cpu": ("nchw",)},
    install="pip install numpy",
)

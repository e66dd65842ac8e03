"""MXNet workers add up their ranks through parameter servers. The servers and the scheduler run this program too."""

import numpy

numpy.bool = bool  # MXNet 1.9.1 asks for it

import mxnet  # noqa: E402

store = mxnet.kv.create("dist_sync")
store.init(3, mxnet.nd.zeros((4,)))
store.push(3, mxnet.nd.ones((4,)) * (store.rank + 1))
total = mxnet.nd.zeros((4,))
store.pull(3, out=total)
print(f"sum {total.asnumpy()[0]:.0f} of {store.num_workers}")

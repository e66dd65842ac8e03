"""JAX processes add up their ranks. JAX reads the coordinator's address itself; the numbers come from variables."""

import os

import jax

jax.distributed.initialize(
    num_processes=int(os.environ["JAX_NUM_PROCESSES"]), process_id=int(os.environ["JAX_PROCESS_ID"])
)
from jax.experimental.multihost_utils import process_allgather  # noqa: E402

total = process_allgather(jax.numpy.array([jax.process_index() + 1.0])).sum()
print(f"sum {total:.0f} of {jax.process_count()}")

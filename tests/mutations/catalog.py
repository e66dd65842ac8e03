"""All mutations, the commands that must be proven without them, and the few that ``make test`` runs."""

from __future__ import annotations

import mistakes_after_warm_up
import mistakes_distributed
import mistakes_in_a_part
import mistakes_jax
import mistakes_keras
import mistakes_loop_and_data
import mistakes_mxnet
import mistakes_servers
import mistakes_tensorflow
import mistakes_torch
from mutation import Mutation, MutationRun
from runs import local, two

from trainscale.worker.frameworks.catalog import FRAMEWORKS

# The titles of the table's parts.
PARTS: dict[str, tuple[Mutation, ...]] = {
    "PyTorch": mistakes_torch.MUTATIONS,
    "TensorFlow": mistakes_tensorflow.MUTATIONS,
    "JAX": mistakes_jax.MUTATIONS,
    "Keras": mistakes_keras.MUTATIONS,
    "MXNet": mistakes_mxnet.MUTATIONS,
    "Several ranks": mistakes_distributed.MUTATIONS,
    "Parameter servers": mistakes_servers.MUTATIONS,
    "Loop and data": mistakes_loop_and_data.MUTATIONS,
    "A part of the work": mistakes_in_a_part.MUTATIONS,
    "After the warm-up": mistakes_after_warm_up.MUTATIONS,
}
MUTATIONS = {mutation.name: mutation for part in PARTS.values() for mutation in part}

# Part of ``make test``: one framework after the other, and what only a witness sees.
FAST = (
    "torch-allreduce-sums",
    "torch-sharded-one-shard-updated",
    "window-skips-steps",
    "ranks-get-the-same-images",
    "mxnet-mean-taken-twice",
    "torch-last-layer-frozen-after-warm-up",
)


def controls() -> list[MutationRun]:
    """Return every command of a mutation, and every strategy of every framework, each once."""
    runs = [mutation.run for mutation in MUTATIONS.values()]
    for framework in FRAMEWORKS.values():
        runs += [
            local(framework.name) if name == "local" else two(framework.name, name) for name in framework.strategies
        ]
    return list(dict.fromkeys(runs))

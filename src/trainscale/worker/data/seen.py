"""Which samples of the data set a rank has trained on, so that the ranks can be compared.

Every batch carries the numbers of its samples. A rank keeps of each epoch how many there were
and the sum of a hash of their numbers, and of its first epoch a flag for each sample.
"""

from __future__ import annotations

import base64
import zlib
from typing import Any

from ..sample import SamplesSeen

MOST_SAMPLES = 16_000_000  # of a data set whose samples have flags: 16 MB of memory, 2 MB to send
HASH_MODULUS = 2**61 - 1


def compute_hash_sum(samples: Any) -> int:
    """Return the sum of a 64-bit hash (a bijection) of sample numbers, modulo 2⁶¹ - 1.

    Two different sets of samples have the same sum with a probability of 2⁻⁶¹.
    """
    import numpy as np

    mixed = np.asarray(samples).astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    # Halves, so that the sums of up to 2³² hashes fit into 64 bits.
    high, low = int((mixed >> np.uint64(32)).sum()), int((mixed & np.uint64(2**32 - 1)).sum())
    return ((high << 32) + low) % HASH_MODULUS


class SamplesTracker:
    """Counts the samples of a rank, which has ``share`` of the ``train`` samples in an epoch.

    ``flags`` say which samples the first epoch had; None for a very large data set.
    """

    def __init__(self, train: int, share: int) -> None:
        import numpy as np

        self.flags: Any = np.zeros(train, np.bool_) if train <= MOST_SAMPLES else None
        self.epochs: dict[int, SamplesSeen] = {}
        self._share = share

    def add(self, epoch: int, samples: Any, hash_sum: int) -> None:
        """Count the samples of a batch, with the sum of their hashes."""
        seen = self.epochs.get(epoch, SamplesSeen(epoch, 0, 0, False))
        count, total = seen.count + len(samples), (seen.hash_sum + hash_sum) % HASH_MODULUS
        self.epochs[epoch] = SamplesSeen(epoch, count, total, count == self._share)
        if self.flags is not None and epoch == next(iter(self.epochs)):
            self.flags[samples] = True


def pack_flags(flags: Any) -> str:
    import numpy as np

    packed = np.packbits(flags, bitorder="little").tobytes()
    return base64.b64encode(zlib.compress(packed, 1)).decode()


def unpack_flags(text: str) -> int:
    """Return the whole number whose bit i is flag i. Raises ValueError."""
    try:
        return int.from_bytes(zlib.decompress(base64.b64decode(text, validate=True)), "little")
    except zlib.error as error:
        raise ValueError(f"damaged flags of samples: {error}") from None

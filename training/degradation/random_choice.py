"""Drawing: rounding without bias and weighted choice without replacement, which keep counts; a seed by name."""

from __future__ import annotations

import zlib

import numpy as np


def name_seed(name: str) -> int:
    """CRC-32 of the name's bytes: those on disk, of a file whose name is not text (surrogates) as well."""
    return zlib.crc32(name.encode(errors="surrogateescape"))


def round_at_random(value: float, rng: np.random.Generator) -> int:
    """`value` rounded up with the probability of its fraction, else down: right on average, off by under 1."""
    whole = int(np.floor(value))
    return whole + int(rng.random() < value - whole)


def weighted_choice(weights: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """`count` indices into the flattened weights, drawn one after the other without replacement.

    Entries of weight 0 are taken only when nothing else is left. The largest of log(weight) + Gumbel noise
    are such a draw (Efraimidis and Spirakis 2006), without a loop.
    """
    if count <= 0:
        return np.zeros(0, dtype=int)
    with np.errstate(divide="ignore"):
        keys = np.log(weights.reshape(-1)) + rng.gumbel(size=weights.size)
    return np.argpartition(keys, weights.size - count)[weights.size - count :]

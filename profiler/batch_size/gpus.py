"""GPUs by name, with the memory that CUDA reports for them (gpus.json holds the figures and their sources).

A name that two cards share is asked about, never guessed: half of the memory, or a third of the speed, hangs on it.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import cache
from pathlib import Path

from swinmr_profiling.profiler.record.blocks.run_description import Gpu as MachineGpu
from swinmr_profiling.profiler.record.units import GIB, MIB

CARDS = Path(__file__).with_name("gpus.json")

UNIT_BYTES = {
    "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40,
}  # fmt: skip
MEMORY_SIZE = re.compile(r"\s*(\d{1,18}(?:\.\d{1,18})?)\s*([A-Za-z]+)\s*")
MEMORY_HELP = "GB is 10^9 bytes, GiB 2^30"

# Words that say nothing about which card it is.
IGNORED = {"nvidia", "geforce", "tesla", "amd", "instinct", "generation", "one", "gcd", "tm", "gpu"}
# Words by which cards of one name differ; SXM2, SXM4 and SXM5 are all the one SXM board of their card.
VARIANT = re.compile(r"\d+gb|sxm\d?|pcie|hbm\d\w?|nvl")
MOST_SUGGESTIONS = 3


class GpuNameError(ValueError):
    """A name that is not a card's, or more than one card's; one line for the user."""


class MemorySizeError(ValueError):
    """Text that is not an amount of memory; one line for the user."""


@dataclass(frozen=True)
class Gpu:
    """One card.

    Attributes:
        total_bytes: the smallest total that CUDA was seen to report for it, less than the nominal size.
        nominal_memory_gb: as sold.
        compute_capability: "8.6"; the architecture's name on AMD ("gfx90a").
        bandwidth_gb_s, *_tflops: peaks, 10^9 bytes and 10^12 FLOPs a second, dense, FP32 accumulate; None where the
            hardware has no such mode or no figure is known.
    """

    name: str
    aliases: tuple[str, ...]
    total_bytes: int
    nominal_memory_gb: int
    also_sold_with_gb: tuple[int, ...]
    compute_capability: str
    multiprocessors: int | None
    bandwidth_gb_s: float | None
    fp32_tflops: float | None
    tf32_tflops: float | None
    fp16_tensor_tflops: float | None
    bf16_tensor_tflops: float | None

    @property
    def memory_gib(self) -> str:
        """Total memory in GiB, as out-of-memory messages print it."""
        return f"{self.total_bytes / GIB:.2f} GiB"


@cache
def known_gpus() -> tuple[Gpu, ...]:
    """All cards, in the file's order."""
    cards = json.loads(CARDS.read_text(encoding="utf-8"))["gpus"]
    alike = [field.name for field in fields(Gpu) if field.name != "total_bytes"]
    make: Callable[..., Gpu] = Gpu
    return tuple(
        make(
            total_bytes=card["total_memory_mib"] * MIB,
            **{name: tuple(value) if isinstance(value := card[name], list) else value for name in alike},
        )
        for card in cards
    )


def find_gpu(text: str) -> Gpu:
    """The card of a name such as "RTX 3090", "a100-sxm4-80gb" or "NVIDIA GeForce RTX 3090".

    Case, punctuation, and the words NVIDIA, GeForce and Tesla do not matter. Raises GpuNameError for a name that
    two cards have, with the cards to choose from, and for an unknown one, with the nearest names.
    """
    words = _words(text)
    family, variant = _split(words)
    found = [gpu for gpu in known_gpus() if family in _families(gpu) and variant <= _variants(gpu)]
    if not found:
        raise GpuNameError(_unknown(text, words))
    says_memory = any(word.endswith("gb") for word in variant)
    also = [] if says_memory else [size for gpu in found for size in gpu.also_sold_with_gb]
    if len(found) == 1 and not also:
        return found[0]
    choices = ", ".join(f'"{gpu.name}" ({gpu.memory_gib})' for gpu in found)
    message = f'"{text}" names more than one card: choose {choices}'
    if also:
        sizes = " and ".join(f"{size} GB" for size in also)
        message += f"; the one with {sizes} is not in the list: give its memory"
    raise GpuNameError(message)


def is_this_gpu(name: str, total_bytes: int, compute_capability: str | None, gpu: MachineGpu) -> bool:
    """Whether a card is the GPU of a machine (`environment.gpu` of a profile).

    By its name, which CUDA writes in more words than people do; one that was given by its memory alone (no compute
    capability) by exactly that memory.
    """
    if compute_capability is None:
        return total_bytes == gpu.total_bytes
    return same_card(name, gpu.name)


def same_card(first: str, second: str) -> bool:
    """Whether two names are of one card: "RTX 3090" and "NVIDIA GeForce RTX 3090"."""
    return _card_of(first) == _card_of(second)


def _card_of(name: str) -> str | tuple[str, frozenset[str]]:
    try:
        return find_gpu(name).name
    except GpuNameError:
        return _split(_words(name))


def parse_bytes(text: str) -> int:
    """Bytes of "24GiB", "80 GB", "24564MiB" or "1.5 GiB": GB is 10^9 bytes, GiB is 2^30; parts of a byte are dropped.

    Raises MemorySizeError.
    """
    match = MEMORY_SIZE.fullmatch(text)
    unit = UNIT_BYTES.get(match.group(2).upper()) if match else None
    if match is None or unit is None:
        raise MemorySizeError(
            f'"{text}" is not an amount of memory: give 24GiB, 80GB or 24564MiB ({MEMORY_HELP})'
        )
    # A float has 53 bits: 24564.1 MiB would no longer be exact.
    return int(Fraction(match.group(1)) * unit)


def _words(text: str) -> list[str]:
    lowered = re.sub(r"(\d+)\s*gi?b\b", r" \1gb ", text.lower())
    lowered = re.sub(r"\b([rg]tx)(?=[a-z]?\d)", r"\1 ", lowered)  # RTX3090
    lowered = re.sub(r"\b(\d{4})(ti|super)\b", r"\1 \2", lowered)  # 3090Ti
    return [word for word in re.findall(r"[a-z0-9]+", lowered) if word not in IGNORED]


def _split(words: list[str]) -> tuple[str, frozenset[str]]:
    """The words that name a card, and those that tell its variants apart."""
    variant = frozenset(re.sub(r"sxm\d", "sxm", word) for word in words if VARIANT.fullmatch(word))
    return " ".join(word for word in words if not VARIANT.fullmatch(word)), variant


@cache
def _families(gpu: Gpu) -> frozenset[str]:
    families = {_split(_words(name))[0] for name in (gpu.name, *gpu.aliases)}
    # "3090" is enough; "TITAN RTX" without its RTX is another card.
    return frozenset(families | {re.sub(r"^[rg]tx (?=.)", "", family) for family in families})


@cache
def _variants(gpu: Gpu) -> frozenset[str]:
    found = {f"{gpu.nominal_memory_gb}gb"}
    for name in (gpu.name, *gpu.aliases):
        found |= _split(_words(name))[1]
    return frozenset(found)


def _unknown(text: str, words: list[str]) -> str:
    names = {" ".join(_words(gpu.name)): gpu.name for gpu in known_gpus()}
    like = difflib.get_close_matches(" ".join(words), names, n=len(names), cutoff=0.5)
    # Of the same number first: by letters "3080 laptop gpu" is nearer to a 3060 Ti than to a 3080.
    numbers = {word for word in words if re.fullmatch(r"[a-z]?\d{2,}", word)}
    near = sorted(like, key=lambda name: not numbers & set(name.split()))[:MOST_SUGGESTIONS]
    hint = f"nearest: {', '.join(names[name] for name in near)}; " if near else ""
    shown = text if len(text) <= 60 else f"{text[:57]}..."
    found = f'"{shown}" is not a card that is known here'
    return f"{found}: {hint}--list-gpus lists them, --gpu-memory 24GiB takes any size"

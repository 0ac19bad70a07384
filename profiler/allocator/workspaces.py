"""Memory that libraries take behind the operators: cuBLAS, cublasLt, and the CUDA context.

The figures are data (workspaces.json), each row with its source; nothing here is measured at run time.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypedDict, cast

from swinmr_profiling.input_error import InputError

TABLE = Path(__file__).with_name("workspaces.json")
# The thread of the forward pass, and autograd's.
PRODUCT_THREADS = 2
KERNELS_BYTES = 128 * 2**20
KERNELS_SOURCE = "128 MiB for the kernels that a run loads (assumed)"


class _LibraryRow(TypedDict):
    backend: str
    torch_from: str
    capabilities: list[int] | None
    cublas_bytes: int
    cublaslt_bytes: int
    cublaslt_kept: bool
    cublaslt_makes_cublas: bool
    source: str


class _ContextRow(TypedDict):
    capability: str
    bare_bytes: int
    source: str


class _Table(TypedDict):
    newest_torch: str
    libraries: list[_LibraryRow]
    contexts: list[_ContextRow]


class WorkspaceTableError(InputError):
    """A torch version or a compute capability that cannot be read."""


@dataclass(frozen=True)
class Workspaces:
    """Of one GPU generation and torch version.

    cublas_bytes: kept by each thread that runs a product, allocator memory. cublaslt_bytes: of a product with a bias,
    allocator memory; 0 where it shares cuBLAS's. context_bytes: outside the allocator.
    cublaslt_kept: whether the thread keeps cublasLt's, too, or gives it back after each product.
    cublaslt_makes_cublas: whether a product with a bias makes the thread's cuBLAS workspace, as any other product does.
    """

    cublas_bytes: int
    cublaslt_bytes: int
    context_bytes: int
    source: str
    cublaslt_kept: bool = False
    cublaslt_makes_cublas: bool = True

    @property
    def process_bytes(self) -> int:
        """Of a training process: cuBLAS's in the forward and the backward thread, cublasLt's one at a time."""
        return PRODUCT_THREADS * self.cublas_bytes + self.cublaslt_bytes


def workspaces_for(torch_version: str, compute_capability: str | None) -> Workspaces:
    """The row for a torch version ("2.14.1+cu130") and a GPU ("8.6"; "gfx942" of AMD, under ROCm; None: unknown).

    What the table does not know gets the nearest newer row, or the newest, and `source` says so. An unknown GPU
    gets the largest workspaces of the version. Raises WorkspaceTableError.
    """
    version = _numbers(torch_version, "torch version")
    is_amd = compute_capability is not None and compute_capability.startswith("gfx")
    capability = None
    if compute_capability is not None and not is_amd:
        capability = _numbers(compute_capability, "compute capability")
    table = _table()
    rows = [row for row in table["libraries"] if row["backend"] == ("rocm" if is_amd else "cuda")]
    row, notes = _library_row(rows, version, capability)
    context_bytes, context_source = _context(table["contexts"], capability, is_amd)
    return Workspaces(
        cublas_bytes=row["cublas_bytes"],
        cublaslt_bytes=row["cublaslt_bytes"],
        context_bytes=context_bytes,
        source="; ".join([*notes, row["source"], context_source]),
        cublaslt_kept=row["cublaslt_kept"],
        cublaslt_makes_cublas=row["cublaslt_makes_cublas"],
    )


@cache
def _table() -> _Table:
    return cast(_Table, json.loads(TABLE.read_text(encoding="utf-8")))


def _numbers(text: str, what: str) -> tuple[int, ...]:
    match = re.match(r"(\d+)\.(\d+)", text)
    if match is None:
        raise WorkspaceTableError(f"{what} {text!r} is not a number with a point, such as 8.6")
    return int(match[1]), int(match[2])


def _library_row(
    rows: list[_LibraryRow], version: tuple[int, ...], capability: tuple[int, ...] | None
) -> tuple[_LibraryRow, list[str]]:
    """The row that covers both, by its first version and its capabilities; and what had to be assumed."""
    notes = []
    first_versions = sorted({_numbers(row["torch_from"], "torch_from") for row in rows})
    known = [first for first in first_versions if first <= version]
    first = known[-1] if known else first_versions[0]
    if not known:
        notes.append(f"torch {version[0]}.{version[1]} is not in the table, {first[0]}.{first[1]} is taken")
    if version > _numbers(_table()["newest_torch"], "newest_torch"):
        notes.append(f"torch {version[0]}.{version[1]} is newer than the table, its last row is taken")
    candidates = [row for row in rows if _numbers(row["torch_from"], "torch_from") == first]
    for row in candidates:
        if row["capabilities"] is None or (capability is not None and capability[0] in row["capabilities"]):
            return row, notes
    if capability is None:
        notes.append("the GPU is unknown, the largest workspaces of this version are taken")
        return max(candidates, key=lambda row: row["cublas_bytes"]), notes
    notes.append(
        f"compute capability {capability[0]}.{capability[1]} is not in the table, its newest is taken"
    )
    return max(candidates, key=lambda row: max(row["capabilities"] or [0])), notes


def _context(
    contexts: list[_ContextRow], capability: tuple[int, ...] | None, is_amd: bool
) -> tuple[int, str]:
    """Bytes of the context with the kernels that a run loads, and where they come from."""
    if is_amd:
        largest = max(context["bare_bytes"] for context in contexts)
        return largest + KERNELS_BYTES, f"context: as CUDA's largest, assumed; {KERNELS_SOURCE}"
    by_capability = {_numbers(context["capability"], "capability"): context for context in contexts}
    ordered = sorted(by_capability)
    note = ""
    if capability in by_capability:
        found = capability
    else:
        newer = [] if capability is None else [known for known in ordered if known > capability]
        found = newer[0] if newer else ordered[-1]
        note = f" (that of compute capability {found[0]}.{found[1]}, the nearest newer that is known)"
    context = by_capability[found]
    return context["bare_bytes"] + KERNELS_BYTES, f"context{note}: {context['source']}, {KERNELS_SOURCE}"

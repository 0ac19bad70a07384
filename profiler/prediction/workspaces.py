"""Memory that libraries take behind the operators: cuBLAS, cublasLt, and the CUDA context."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Workspaces:
    """Of one GPU generation and torch version.

    cublas_bytes: kept by each thread that runs a product, allocator memory. cublaslt_bytes: for the duration of a
    product with a bias, allocator memory; 0 where it shares cuBLAS's. context_bytes: outside the allocator.
    """

    cublas_bytes: int
    cublaslt_bytes: int
    context_bytes: int
    source: str

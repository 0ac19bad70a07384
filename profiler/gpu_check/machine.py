"""What the libraries take on this GPU: the CUDA context, and the workspaces of cuBLAS and cublasLt.

Answers in a process that has not touched the GPU: a workspace is made once in the life of a process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel

from swinmr_profiling.profiler.gpu_check.record import LibraryCosts, Product, WorkspaceRow
from swinmr_profiling.profiler.gpu_check.subprocesses import SkippedError, serve
from swinmr_profiling.profiler.record.blocks.run_description import Gpu

if TYPE_CHECKING:
    import torch

SIDE = 256


class MachineRequest(BaseModel):
    """order: of the first uses of cuBLAS and cublasLt."""

    gpu_uuid: str | None
    device: str
    order: Literal["plain_first", "bias_first"]


def main() -> None:
    serve(MachineRequest, measure)


def measure(request: MachineRequest) -> LibraryCosts:
    """The context of this process, and what its first products take."""
    from swinmr_profiling.profiler.measure.machine.machine_state import nvml_used_bytes

    used_before = nvml_used_bytes(request.gpu_uuid)
    import torch

    if not torch.cuda.is_available():
        raise SkippedError("there is no GPU")
    device = torch.device(request.device)
    torch.cuda.init()
    torch.cuda.set_device(device)
    a = torch.rand(SIDE, SIDE, device=device)
    torch.cuda.synchronize(device)
    used_after = nvml_used_bytes(request.gpu_uuid)
    context = None
    if used_before is not None and used_after is not None:
        context = max(used_after - used_before - torch.cuda.memory_reserved(device), 0)
    bias = torch.zeros(SIDE, device=device)

    def plain() -> None:
        a @ a

    def with_bias() -> None:
        torch.nn.functional.linear(a, a, bias)

    def with_bias_bf16() -> None:
        with torch.autocast("cuda", torch.bfloat16):
            torch.nn.functional.linear(a, a, bias)

    def backward() -> None:
        weight = a.clone().requires_grad_()
        (weight @ a).sum().backward()

    order = [("plain", plain), ("with_bias", with_bias)]
    if request.order == "bias_first":
        order.reverse()
    order += [("with_bias_again", with_bias), ("with_bias_bf16", with_bias_bf16), ("backward", backward)]
    return LibraryCosts(context_bytes=context, products={name: _cost(run, device) for name, run in order})


def _cost(run: Callable[[], None], device: torch.device) -> Product:
    import torch

    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    run()
    torch.cuda.synchronize(device)
    return Product(
        kept_bytes=torch.cuda.memory_allocated(device) - before,
        peak_bytes=torch.cuda.max_memory_allocated(device) - before,
    )


def workspace_row(
    plain_first: LibraryCosts, bias_first: LibraryCosts, gpu: Gpu, torch_version: str
) -> WorkspaceRow:
    """The measurement in the form of the workspace table: bytes of cuBLAS per thread, of cublasLt, of the context."""
    result_bytes = SIDE * SIDE * 4
    products = plain_first.products
    lt_kept = products["with_bias"].kept_bytes
    # The second call makes nothing new: what it has beside its result is given back after each product.
    lt_passing = products["with_bias_again"].peak_bytes - result_bytes
    return WorkspaceRow(
        backend="cuda",
        torch_from=".".join(torch_version.split(".")[:2]),
        capabilities=[int((gpu.compute_capability or "").split(".")[0])],
        cublas_bytes=products["plain"].kept_bytes,
        cublaslt_bytes=lt_kept or max(lt_passing, 0),
        cublaslt_kept=lt_kept > 0,
        cublaslt_makes_cublas=bias_first.products["plain"].kept_bytes == 0,
        backward_thread_bytes=products["backward"].kept_bytes,
        context_bytes=plain_first.context_bytes,
        source=f"measured by scripts/check_on_gpu.py on {gpu.name}, torch {torch_version}",
    )

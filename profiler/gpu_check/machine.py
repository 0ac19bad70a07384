"""What the libraries take on this GPU: the CUDA context, and the workspaces of cuBLAS and cublasLt.

Answers in a process that has not touched the GPU: a workspace is made once in the life of a process.
"""

from __future__ import annotations

from typing import Any

from swinmr_profiling.profiler.gpu_check.subprocesses import serve

SIDE = 256


def main() -> None:
    serve(measure)


def measure(request: dict[str, Any]) -> dict[str, Any]:
    """{"context_bytes", "products": {name: bytes}} for an order of first uses: "plain_first" or "bias_first"."""
    from swinmr_profiling.profiler.measure.machine_state import nvml_used_bytes

    used_before = nvml_used_bytes(request["gpu_uuid"])
    import torch

    if not torch.cuda.is_available():
        return {"skipped": "there is no GPU"}
    device = torch.device(request["device"])
    torch.cuda.init()
    torch.cuda.set_device(device)
    a = torch.rand(SIDE, SIDE, device=device)
    torch.cuda.synchronize(device)
    used_after = nvml_used_bytes(request["gpu_uuid"])
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
    if request["order"] == "bias_first":
        order.reverse()
    order += [("with_bias_again", with_bias), ("with_bias_bf16", with_bias_bf16), ("backward", backward)]
    return {"context_bytes": context, "products": {name: _cost(run, device) for name, run in order}}


def _cost(run: Any, device: Any) -> dict[str, int]:
    """kept: bytes that the call left allocated. peak: the most it had beside what was there."""
    import torch

    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    run()
    torch.cuda.synchronize(device)
    return {
        "kept_bytes": torch.cuda.memory_allocated(device) - before,
        "peak_bytes": torch.cuda.max_memory_allocated(device) - before,
    }


def workspace_row(
    plain_first: dict[str, Any], bias_first: dict[str, Any], gpu: dict[str, Any], torch_version: str
) -> dict[str, Any]:
    """The measurement in the form of the workspace table: bytes of cuBLAS per thread, of cublasLt, of the context."""
    result_bytes = SIDE * SIDE * 4
    cublas = plain_first["products"]["plain"]["kept_bytes"]
    lt_kept = plain_first["products"]["with_bias"]["kept_bytes"]
    # The second call makes nothing new: what it has beside its result is given back after each product.
    lt_passing = plain_first["products"]["with_bias_again"]["peak_bytes"] - result_bytes
    version = ".".join(torch_version.split(".")[:2])
    source = f"measured by scripts/check_on_gpu.py on {gpu['name']}, torch {torch_version}"
    return {
        "backend": "cuda",
        "torch_from": version,
        "capabilities": [int(gpu["compute_capability"].split(".")[0])],
        "cublas_bytes": cublas,
        "cublaslt_bytes": lt_kept or max(lt_passing, 0),
        "cublaslt_kept": lt_kept > 0,
        "cublaslt_makes_cublas": bias_first["products"]["plain"]["kept_bytes"] == 0,
        "backward_thread_bytes": plain_first["products"]["backward"]["kept_bytes"],
        "context_bytes": plain_first["context_bytes"],
        "source": source,
    }

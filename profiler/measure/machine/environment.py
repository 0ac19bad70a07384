"""What the figures were measured on: machine, software, and the state of the repository."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path

import psutil
import torch

from swinmr_profiling import CHECKOUT
from swinmr_profiling.profiler.record.blocks.run_description import Environment, GitState, Gpu, Processor

PACKAGES = (
    "torch", "torchvision", "timm", "fvcore", "thop", "lpips", "numpy", "tqdm", "pydantic", "psutil",
    "nvidia-ml-py", "diffusers", "transformers",
)  # fmt: skip
GIT_TIMEOUT_S = 10
CPUINFO = Path("/proc/cpuinfo")


def cpu_name() -> str:
    """The processor's marketing name where the system tells it, else its architecture."""
    try:
        for line in CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.lower().startswith(("model name", "hardware")):
                return line.partition(":")[2].strip()
    except OSError:
        pass  # not Linux
    return platform.processor() or platform.machine()


def usable_cores() -> int:
    """Logical cores this process may run on (its affinity mask, not the machine's total)."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def package_versions() -> dict[str, str | None]:
    """Installed version of each package whose version can change a figure; None where it is missing (never torch)."""
    versions: dict[str, str | None] = {}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = None
    # Of a torch that was not installed as a package: a profile says which one measured.
    versions["torch"] = versions["torch"] or str(torch.__version__)
    return versions


def git_state(folder: Path | None = CHECKOUT) -> GitState | None:
    """The repository's, or None where there is none (or no git).

    An installed package has none, though its environment may lie in a repository of the user's.
    """
    if folder is None:
        return None

    def git(*arguments: str) -> str:
        ended = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, check=True, timeout=GIT_TIMEOUT_S
        )
        return ended.stdout.decode("utf-8", "replace").strip()

    try:
        return GitState(commit=git("rev-parse", "HEAD"), dirty=bool(git("status", "--porcelain")))
    except (OSError, subprocess.SubprocessError):
        return None


def gpu_state(device: torch.device) -> Gpu | None:
    """Name, memory and software of a GPU; None on a CPU. Memory in bytes."""
    if device.type != "cuda":
        return None
    properties = torch.cuda.get_device_properties(device)
    free, total = torch.cuda.mem_get_info(device)
    state = Gpu(
        name=properties.name,
        index=device.index,
        uuid=str(properties.uuid) if hasattr(properties, "uuid") else None,
        compute_capability=f"{properties.major}.{properties.minor}",
        multiprocessors=properties.multi_processor_count,
        total_bytes=total,
        free_bytes_at_start=free,
        cuda=torch.version.cuda,
        cudnn=torch.backends.cudnn.version(),
        allocator_config=os.environ.get("PYTORCH_ALLOC_CONF") or os.environ.get("PYTORCH_CUDA_ALLOC_CONF"),
        tf32_matmul=torch.backends.cuda.matmul.allow_tf32,
        tf32_cudnn=torch.backends.cudnn.allow_tf32,
        cudnn_benchmark=torch.backends.cudnn.benchmark,
        driver=None,
    )
    try:
        import pynvml

        pynvml.nvmlInit()
        state.driver = pynvml.nvmlSystemGetDriverVersion()
    except Exception as error:  # a driver without NVML is still a GPU that computes
        state.driver_error = f"{type(error).__name__}: {error}"
    return state


def describe_environment(device: torch.device) -> Environment:
    """Machine and software; the command line is the command's to tell."""
    memory = psutil.virtual_memory()
    return Environment(
        time_utc=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        python=platform.python_version(),
        platform=platform.platform(),
        cpu=Processor(
            name=cpu_name(),
            physical_cores=psutil.cpu_count(logical=False),
            logical_cores=psutil.cpu_count(logical=True),
            usable_cores=usable_cores(),
            threads=torch.get_num_threads(),
            interop_threads=torch.get_num_interop_threads(),
            capability=torch.backends.cpu.get_cpu_capability(),
        ),
        memory_total_bytes=memory.total,
        memory_available_bytes_at_start=memory.available,
        gpu=gpu_state(device),
        packages=package_versions(),
        float32_matmul_precision=torch.get_float32_matmul_precision(),
        git=git_state(),
        executable=Path(sys.executable).name,
        command_line="",
    )

"""What was profiled, with which options, on which machine and software."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, model_validator

from swinmr_profiling.profiler.record.blocks.figures import Block, Bytes, PositiveCount, Precision, Sha256


class RunConfig(Block):
    """The config and every option that changes a figure."""

    model: str
    # Pixels: one number, [height, width], or null where the network has its own.
    image_size: int | list[int] | None
    device: str
    config_file: str
    config_sha256: Sha256
    experiment_name: str
    batch_sizes: list[PositiveCount]
    precision: Precision
    channels_last: bool
    compile: bool
    num_runs: int | None
    warmup: int | None
    time_budget_s: float
    timeout_s: float | None
    seed: int
    threads: int | None
    trust_config: bool
    # The whole config after defaults and overrides: configs.schema.Config as JSON.
    resolved: dict[str, Any]


class Processor(Block):
    """The host's processor, and the threads that torch used of it."""

    name: str
    physical_cores: int | None
    logical_cores: int | None
    usable_cores: int
    threads: int
    interop_threads: int
    capability: str


class Gpu(Block):
    """The GPU that was measured; drivers tell more of some than of others."""

    model_config = ConfigDict(extra="allow")

    name: str
    index: int | None = None
    uuid: str | None = None
    compute_capability: str | None = None
    multiprocessors: PositiveCount | None = None
    total_bytes: Bytes
    free_bytes_at_start: Bytes | None = None
    cuda: str | None = None
    cudnn: int | None = None
    # PYTORCH_ALLOC_CONF of the measuring process.
    allocator_config: str | None = None
    tf32_matmul: bool | None = None
    tf32_cudnn: bool | None = None
    cudnn_benchmark: bool | None = None
    driver: str | None = None
    # Why NVML told no driver.
    driver_error: str | None = None


class GitState(Block):
    """The state of the repository."""

    commit: str
    dirty: bool


class NoEnvironment(Block):
    """Of a run that ended before the machine was looked at."""


class Environment(Block):
    """Machine and software of a run."""

    time_utc: str
    python: str
    platform: str
    cpu: Processor
    memory_total_bytes: Bytes
    memory_available_bytes_at_start: Bytes
    gpu: Gpu | None
    packages: dict[str, str | None]
    float32_matmul_precision: str
    git: GitState | None
    executable: str
    command_line: str
    resumed_from_utc: str | None = None

    @property
    def torch_version(self) -> str:
        """Of torch, as the measuring process has it."""
        return self.packages["torch"] or ""

    @model_validator(mode="after")
    def _torch_is_among_the_packages(self) -> Environment:
        if self.packages.get("torch") is None:
            raise ValueError("packages name no torch")
        return self

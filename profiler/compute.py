"""Compute of a live diffusion pipeline: `create_profiler`, the name that users of pipeline profilers import."""

from swinmr_profiling.profiler.pipelines.live.compute import ComputeProfiler, create_profiler

__all__ = ["ComputeProfiler", "create_profiler"]

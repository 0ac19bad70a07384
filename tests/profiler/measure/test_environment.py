"""What a machine is said to be, with a GPU that is made up."""

import importlib.metadata
from types import SimpleNamespace

import torch

from swinmr_profiling.profiler.measure.machine import environment
from swinmr_profiling.profiler.measure.machine.environment import (
    describe_environment,
    gpu_state,
    package_versions,
)
from swinmr_profiling.profiler.record.blocks.run_description import Environment

GIB = 2**30


def test_a_machine_without_a_gpu_is_a_block_that_reads_back():
    found = describe_environment(torch.device("cpu"))
    assert found.gpu is None
    assert found.cpu.threads == torch.get_num_threads()
    assert found.torch_version == importlib.metadata.version("torch")
    assert Environment.model_validate(found.to_json()) == found


def test_a_gpu_is_named_with_its_memory(monkeypatch):
    properties = SimpleNamespace(name="Some GPU", uuid="abc", major=8, minor=6, multi_processor_count=82)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (20 * GIB, 24 * GIB))
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "expandable_segments:True")
    gpu = gpu_state(torch.device("cuda", 1))
    assert (gpu.name, gpu.index, gpu.uuid, gpu.compute_capability) == ("Some GPU", 1, "abc", "8.6")
    assert (gpu.total_bytes, gpu.free_bytes_at_start, gpu.multiprocessors) == (24 * GIB, 20 * GIB, 82)
    assert gpu.allocator_config == "expandable_segments:True"
    # The order that a profile has had from the first.
    assert list(gpu.to_json())[:7] == [
        "name",
        "index",
        "uuid",
        "compute_capability",
        "multiprocessors",
        "total_bytes",
        "free_bytes_at_start",
    ]


def test_a_torch_that_is_no_installed_package_is_named_by_itself(monkeypatch):
    def missing(package):
        raise importlib.metadata.PackageNotFoundError(package)

    monkeypatch.setattr(environment.importlib.metadata, "version", missing)
    versions = package_versions()
    assert versions["torch"] == torch.__version__
    assert versions["thop"] is None

"""Watching beside torch's own counter, around one and the same call."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

from swinmr_profiling.profiler.compute import create_profiler
from swinmr_profiling.scripts.tiny_pipelines.pipeline_calls import call_of, components_of

# The fused attention of CPUs: torch's counter has no formula for it, and has one for its siblings on GPUs.
CPU_ATTENTION = "aten::_scaled_dot_product_flash_attention_for_cpu"


def _cpu_attention(query, key, value, *args, out_val=None, **kwargs):
    return sdpa_flop_count(query, key, value)


def tiny(name):
    """A pipeline of diffusers with the tiny components of the table of classes."""
    import diffusers

    if not hasattr(diffusers, name):
        pytest.skip(f"this diffusers has no {name}")
    torch.manual_seed(0)
    pipe = getattr(diffusers, name)(**components_of(getattr(diffusers, name)))
    pipe.set_progress_bar_config(disable=True)
    return pipe


def watched(pipe, shape=(1, 3, 64, 64), **arguments):
    """The profile of a call that was watched; asserts that it has the MACs of FlopCounterMode / 2 to the unit.

    What torch's counter leaves out by itself is named: the fused attention of CPUs, and nothing else.
    """
    arguments = arguments or call_of(pipe)
    profiler = create_profiler()
    operator = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    with (
        profiler.watch(pipe) as run,
        FlopCounterMode(display=False, custom_mapping={operator: _cpu_attention}) as flops,
    ):
        pipe(**arguments)
    theirs = {
        str(key).replace("aten.", "aten::"): count // 2
        for key, count in flops.get_flop_counts()["Global"].items()
    }
    assert run.by_operator == {name: macs for name, macs in theirs.items() if macs}
    assert run.macs == flops.get_total_flops() // 2
    profile = profiler.profile_pipeline(pipe, shape, 2)
    assert (profile["enabled"], profile["total_macs"], profile["incomplete"]) == (True, run.macs, {})
    assert profile["partial"] is None
    return profile


def part(profile, name):
    """The figures of one network."""
    (found,) = (one for one in profile["components_measured"] if one["name"] == name)
    return found

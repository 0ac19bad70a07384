"""Compiled networks: they run compiled, are counted from their eager originals, and are labelled so."""

import pytest
import torch
from torch._dynamo.testing import CompileCounter

from swinmr_profiling.profiler.compute import create_profiler
from tests.profiler.pipelines.watched_pipelines import part, watched
from tests.tiny_pipelines import SIDE

pytest.importorskip("diffusers")
CALL = dict(prompt="a cat", height=SIDE, width=SIDE, num_inference_steps=2)
SHAPE = (1, 3, SIDE, SIDE)


@pytest.fixture
def compiler():
    """A backend that says how many graphs were compiled, and runs them as they are."""
    torch._dynamo.reset()
    yield CompileCounter()
    torch._dynamo.reset()


def watch(pipe):
    profiler = create_profiler()
    with profiler.watch(pipe):
        pipe(**CALL)
    return profiler.profile_pipeline(pipe, SHAPE, 2)


def by_wrapper(pipe, backend):
    pipe.unet = torch.compile(pipe.unet, backend=backend)


def in_place(pipe, backend):
    pipe.unet.compile(backend=backend)


def by_forward(pipe, backend):
    pipe.unet.forward = torch.compile(pipe.unet.forward, backend=backend)


@pytest.mark.slow
@pytest.mark.parametrize("compile_unet", [by_wrapper, in_place, by_forward])
def test_a_compiled_unet(load_tiny_pipeline, compiler, compile_unet):
    plain = watched(load_tiny_pipeline("unet"), SHAPE, **CALL)
    pipe = load_tiny_pipeline("unet")
    compile_unet(pipe, compiler)
    pipe(**CALL)
    compiled = compiler.frame_count
    assert compiled > 0
    profile = watch(pipe)
    # It ran, and what had been compiled was neither left aside nor compiled anew.
    assert compiler.frame_count == compiled
    unet = part(profile, "unet")
    assert (unet["calls"], unet["macs"]) == (3, part(plain, "unet")["macs"])
    assert "unet ran compiled: counted from a trace of its eager original, 3 calls" in unet["note"]
    assert profile["total_macs"] == plain["total_macs"]
    # Without data attention is two products.
    assert profile["by_kind"] == plain["by_kind"]
    pipe(**CALL)
    assert compiler.frame_count == compiled


@pytest.mark.slow
def test_a_compiled_block_is_counted_at_its_own_boundary(load_tiny_pipeline, compiler):
    plain = watched(load_tiny_pipeline("unet"), SHAPE, **CALL)
    pipe = load_tiny_pipeline("unet")
    pipe.unet.mid_block.compile(backend=compiler)
    profile = watch(pipe)
    assert compiler.frame_count > 0
    assert profile["total_macs"] == plain["total_macs"]
    assert part(profile, "unet")["calls"] == 3
    assert "unet.mid_block ran compiled" in part(profile, "unet")["note"]


@pytest.mark.slow
def test_what_was_compiled_and_cannot_be_traced_is_refused_by_name(load_tiny_pipeline, compiler):
    pipe = load_tiny_pipeline("unet")
    own = type(pipe.unet).forward

    def forward(*args, **kwargs):
        return own(pipe.unet, *args, **kwargs)

    pipe.unet.forward = torch.compile(forward, backend=compiler)
    profile = watch(pipe)
    assert compiler.frame_count > 0
    assert "not a method of the network" in profile["incomplete"]["unet"]
    assert (part(profile, "unet")["macs"], part(profile, "unet")["enabled"]) == (0, False)
    assert part(profile, "vae")["macs"] > 0


def test_a_run_that_raises_puts_compiled_networks_back(load_tiny_pipeline, compiler):
    pipe = load_tiny_pipeline("unet")
    pipe.unet.compile(backend=compiler)
    own = pipe.unet._compiled_call_impl
    with pytest.raises(ValueError, match="divisible"), create_profiler().watch(pipe):
        pipe("a cat", height=SIDE + 1, width=SIDE)
    assert pipe.unet._compiled_call_impl is own

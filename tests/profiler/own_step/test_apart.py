"""What a caller has entered around a call, and calls of other threads, change neither a figure nor themselves."""

import threading
from contextlib import contextmanager

import pytest
import torch
from torch import nn

from swinmr_profiling import count, predict_training


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.GELU(), nn.Dropout(0.1), nn.Conv2d(8, 3, 3, padding=1)
    )


def figures(model=None):
    model, x = model or network(), torch.zeros(2, 3, 16, 16, dtype=torch.float32)
    sizes = predict_training(model, x, precision="bf16").config_setting.sizes
    return count(model, x).macs, sizes["1"].live_bytes


@contextmanager
def default_dtype(dtype):
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@contextmanager
def deterministic():
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def state():
    nesting = torch.autocast_increment_nesting()
    torch.autocast_decrement_nesting()
    autocast = [(torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in ("cpu", "cuda")]
    return (
        *(torch.is_grad_enabled(), torch.is_inference_mode_enabled(), nesting, autocast),
        *(
            torch.get_default_dtype(),
            torch.get_default_device(),
            torch.are_deterministic_algorithms_enabled(),
        ),
    )


AROUND = {
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "autocast of a CPU": lambda: torch.autocast("cpu", torch.bfloat16),
    "autocast of CUDA": lambda: torch.autocast("cuda", torch.float16),
    "default dtype": lambda: default_dtype(torch.bfloat16),
    "default device": lambda: torch.device("meta"),
    "deterministic": deterministic,
}


@pytest.fixture(scope="module")
def plain():
    return figures()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", AROUND)
@pytest.mark.filterwarnings("ignore:.*CUDA is not available")
def test_a_context_around_a_call_is_not_in_its_figures_and_stays_as_it_was(name, plain):
    model = network()
    with AROUND[name]():
        before = state()
        assert figures(model) == plain
        assert state() == before


@pytest.mark.slow
def test_threads_get_the_figures_of_one(plain):
    # Four at once: each changes torch for the process while it lasts.
    found = []
    threads = [threading.Thread(target=lambda: found.append(figures())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [plain] * 4


def test_a_step_that_raises_leaves_the_callers_state():
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        before = state()
        with pytest.raises(Exception, match="no such"):
            predict_training(lambda batch: (_ for _ in ()).throw(RuntimeError("no such")), torch.zeros(2, 3))
        assert state() == before

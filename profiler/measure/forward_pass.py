"""One batch size, measured: the forward pass as inference runs it, its latency and its memory.

Also what LPIPS (Zhang et al. 2018) costs as a metric: one comparison of two images, AlexNet backbone. The cost does not
depend on the weights, so the backbone is random and nothing is downloaded: the value it computes means nothing and is
not reported.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from swinmr_profiling.models.inputs import BuiltModel
from swinmr_profiling.models.stand_in import all_entered
from swinmr_profiling.profiler.counting import count_forward
from swinmr_profiling.profiler.measure.machine.devices import MeasuredDevice
from swinmr_profiling.profiler.measure.measurement import BatchMeasurement, MetricMeasurement
from swinmr_profiling.profiler.measure.timing.latency import LatencyPolicy, measure_latency
from swinmr_profiling.training.own_gradients import without_gradients

LPIPS_CHANNELS = 3
_BACKENDS: Any = torch.backends  # not all of them are typed
# What a network may set for the process: how each is read and written. The settings of TF32 and its like have an
# `fp32_precision` each; torch's older names for them (`float32_matmul_precision`, `allow_tf32`) cannot be read once a
# network has set these, and are given back first.
_SETTINGS: tuple[tuple[Callable[[], Any], Callable[[Any], object]], ...] = (
    (torch.get_default_dtype, torch.set_default_dtype),
    (torch.get_num_threads, torch.set_num_threads),
    (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    *(
        (partial(getattr, owner, name), partial(setattr, owner, name))
        for owner, name in (
            (_BACKENDS.cudnn, "allow_tf32"),
            (_BACKENDS.cuda.matmul, "fp32_precision"),
            (_BACKENDS.cudnn.conv, "fp32_precision"),
            (_BACKENDS.cudnn.rnn, "fp32_precision"),
            (_BACKENDS.mkldnn.matmul, "fp32_precision"),
            (_BACKENDS.mkldnn.conv, "fp32_precision"),
            (_BACKENDS.cudnn, "enabled"),
            (_BACKENDS.cudnn, "benchmark"),
            (_BACKENDS.cudnn, "deterministic"),
        )
    ),
)


def _read(setting: Callable[[], Any]) -> Any:
    """None where it is set under newer names alone."""
    with suppress(RuntimeError):
        return setting()
    return None


@contextmanager
def state_preserved(module: nn.Module) -> Iterator[None]:
    """Gives back what measuring changes: each submodule's training flag, and torch's global settings."""
    modes = [(part, part.training) for part in module.modules()]
    rng = torch.get_rng_state()
    cuda_rng = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None
    before = [_read(read) for read, _ in _SETTINGS]
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training
        torch.set_rng_state(rng)
        if cuda_rng is not None:
            torch.cuda.set_rng_state_all(cuda_rng)
        for (read, write), value in zip(_SETTINGS, before, strict=True):
            if value not in (None, _read(read)):
                write(value)


def tensors_in(output: Any) -> Iterator[Tensor]:
    """Every tensor of a forward's output: a tensor, or tuples, lists, dicts and dataclasses of them."""
    if isinstance(output, Tensor):
        yield output
    elif isinstance(output, dict):
        for value in output.values():
            yield from tensors_in(value)
    elif isinstance(output, (list, tuple)):
        for value in output:
            yield from tensors_in(value)
    elif is_dataclass(output) and not isinstance(output, type):
        for field in fields(output):
            yield from tensors_in(getattr(output, field.name))


def is_finite(output: Any) -> bool:
    """Whether no floating-point tensor of the output holds a NaN or an infinity."""
    return all(
        bool(torch.isfinite(tensor).all())
        for tensor in tensors_in(output)
        if tensor.is_floating_point() or tensor.is_complex()
    )


def first_nonfinite_module(module: nn.Module, run: Callable[[], Any]) -> str | None:
    """Name of the module whose output is the first, in execution order, to hold a NaN or an infinity.

    Runs one forward pass with hooks, which are removed again. None where no module's output holds one.
    """
    found: list[str] = []

    def check(name: str, _module: nn.Module, _inputs: Any, output: Any) -> None:
        if not found and not is_finite(output):
            found.append(name)

    parts = module.named_modules()
    with all_entered(
        part.register_forward_hook(partial(check, name or "(the network)")) for name, part in parts
    ):
        run()
    return found[0] if found else None


def inputs_on(
    built: BuiltModel, batch_size: int, device: torch.device, *, channels_last: bool
) -> tuple[Tensor, ...]:
    """The network's example inputs in fp32: under autocast the operators choose."""
    inputs = built.example_inputs(batch_size, device, torch.float32)
    if not channels_last:
        return inputs
    return tuple(x.to(memory_format=torch.channels_last) if x.ndim == 4 else x for x in inputs)


def finish_work(device: torch.device) -> None:
    """Waits until the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@contextmanager
def evaluating(module: nn.Module, device: torch.device, dtype: torch.dtype) -> Iterator[None]:
    """Evaluation mode under autocast to a dtype (fp32: none); afterwards everything is as it was."""
    with state_preserved(module), torch.autocast(device.type, dtype, enabled=dtype != torch.float32):
        module.eval()
        yield


def measure_forward(
    built: BuiltModel,
    forward: Callable[..., Any],
    device: MeasuredDevice,
    torch_device: torch.device,
    dtype: torch.dtype,
    batch_size: int,
    policy: LatencyPolicy,
    *,
    expected_ms: float | None = None,
    channels_last: bool = False,
    on_run: Callable[[], None] = lambda: None,
) -> BatchMeasurement:
    """Measures forward passes of one batch size in evaluation mode under inference_mode.

    A network whose forward takes gradients itself cannot run so, and is measured with gradients enabled.

    forward: what is called with the inputs, `built.module` itself or its compiled form.
    dtype: fp32 runs as it is; bf16 and fp16 run under autocast, as training does: weights stay fp32.
    Raises whatever the network raises.
    """
    inputs = inputs_on(built, batch_size, torch_device, channels_last=channels_last)
    return without_gradients(
        built.module,
        lambda: _measured(
            built, forward, inputs, device, torch_device, dtype, batch_size, policy, expected_ms, on_run
        ),
    )


def _measured(
    built: BuiltModel,
    forward: Callable[..., Any],
    inputs: tuple[Tensor, ...],
    device: MeasuredDevice,
    torch_device: torch.device,
    dtype: torch.dtype,
    batch_size: int,
    policy: LatencyPolicy,
    expected_ms: float | None,
    on_run: Callable[[], None],
) -> BatchMeasurement:
    last_output: list[Any] = [None]

    def run() -> None:
        # The previous output is freed first: a loop that reads its results would not keep two.
        last_output[0] = None
        last_output[0] = forward(*inputs)

    def run_ms() -> float:
        elapsed = device.time_ms(run)
        on_run()
        return elapsed

    # High-water mark of the warm-up; stays 0 where there is none, and the first timed run is the cold one.
    cold_peak = 0

    def on_warm() -> None:
        nonlocal cold_peak
        if last_output[0] is not None:
            cold_peak = device.peak().allocated_bytes
        last_output[0] = None
        device.reset_peak()

    with evaluating(built.module, torch_device, dtype):
        # SwinIR says which way its attention goes here (models/swin/attention.py): figures depend on it.
        policy_of = getattr(built.module, "attention_policy", None)
        is_compiled = forward is not built.module
        attention = policy_of(torch_device.type, trains=False, traced=is_compiled) if policy_of else None
        device.release_cached()
        device.reset_peak()
        before = device.current_bytes()
        latency = measure_latency(run_ms, policy, expected_ms=expected_ms, on_warm=on_warm)
        peak = device.peak()
        finite = is_finite(last_output[0])
        last_output[0] = None
        device.release_cached()
        after = device.current_bytes()
        culprit = None
        if not finite:
            culprit = first_nonfinite_module(built.module, lambda: built.module(*inputs)) or "(the network)"
    return BatchMeasurement(
        batch_size=batch_size,
        input_shape=[int(n) for n in inputs[0].shape],
        latency=latency,
        before_bytes=before,
        after_bytes=after,
        # Whatever was read is at most the peak, also what was read after it.
        peak_bytes=max(cold_peak, peak.allocated_bytes, before, after),
        cold_peak_bytes=max(cold_peak or peak.allocated_bytes, before),
        warm_peak_bytes=max(peak.allocated_bytes, after),
        reserved_peak_bytes=peak.reserved_bytes,
        memory_kind=device.memory_kind,
        memory_is_exact=device.memory_is_exact,
        first_nonfinite_module=culprit,
        attention=attention,
    )


def build_lpips() -> nn.Module:
    """LPIPS with a random AlexNet backbone. Raises ImportError without the package."""
    import lpips

    # It prints what it loads, and calls torchvision in a form that torchvision warns of.
    with redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return lpips.LPIPS(net="alex", pretrained=False, pnet_rand=True, verbose=False).eval()


def measure_lpips(
    image_hw: tuple[int, int], device: MeasuredDevice, torch_device: torch.device, policy: LatencyPolicy
) -> MetricMeasurement:
    """Parameters, MACs and raw latency of one LPIPS comparison of two images of height x width pixels.

    Raises whatever LPIPS raises (images under about 32 pixels are too small for its backbone).
    """
    metric = build_lpips()
    shape = (1, LPIPS_CHANNELS, *image_hw)
    generator = torch.Generator().manual_seed(0)
    pair: tuple[Tensor, ...] = tuple(torch.rand(shape, generator=generator) * 2 - 1 for _ in range(2))
    counted = count_forward(metric, pair)
    metric.to(torch_device)
    pair = tuple(image.to(torch_device) for image in pair)
    with torch.inference_mode():
        latency = measure_latency(lambda: device.time_ms(lambda: metric(*pair)), policy)
    return MetricMeasurement(list(shape), counted.parameters, counted.macs, latency)

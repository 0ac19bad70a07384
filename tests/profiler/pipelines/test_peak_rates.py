"""Peaks: NVIDIA's own figures, and no figure where there is none."""

import torch

from swinmr_profiling.profiler.pipelines.live.timed_run import device_peak_tflops, peak_tflops


def test_known_cards():
    # NVIDIA A100 data sheet: 312 TFLOP/s dense bf16 and fp16, 156 TF32, 19.5 fp32.
    name = "NVIDIA A100-SXM4-80GB"
    assert peak_tflops(name, torch.bfloat16) == 312
    assert peak_tflops(name, torch.float32, allows_tf32=True) == 156
    assert peak_tflops(name, torch.float32) == 19.5
    # T4: 65 fp16 with tensor cores, no bf16 hardware.
    assert peak_tflops("Tesla T4", torch.float16) == 65
    assert peak_tflops("Tesla T4", torch.bfloat16) is None


def test_unknown_devices():
    assert peak_tflops("Some Card", torch.float16) is None
    assert device_peak_tflops(torch.device("cpu"), torch.float32) is None

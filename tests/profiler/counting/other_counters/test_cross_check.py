"""The second opinions: explained to the unit, in a process of their own, whatever becomes of it."""

import json
import os
import tempfile
from pathlib import Path

import pytest
import torch
import torchvision
from spandrel.architectures.SwinIR import SwinIR
from torch import nn

from swinmr_profiling.process import ended_with, python_command
from swinmr_profiling.profiler.counting import (
    CrossCheck,
    count_forward,
    cross_check,
    cross_check_module,
    second_opinion,
)
from swinmr_profiling.profiler.counting.other_counters import cross_check as processes
from swinmr_profiling.scripts.counter_cases.operators import CASES
from tests.conftest import _fork_server
from tests.without_packages import code_without

TINY_CONFIG = {
    "experiment_name": "tiny",
    "model": {
        "net_type": "swinir",
        "img_size": 64,
        "window_size": 8,
        "depths": [2],
        "num_heads": [2],
        "embed_dim": 12,
    },
}


def check_parts(check: CrossCheck) -> None:
    assert check.status == "ok"
    assert check.difference == check.figure - check.ours
    assert sum(part.macs for part in check.parts) == check.difference
    assert all(part.operator and part.why and part.macs for part in check.parts)
    if check.figure_parameters is not None:
        assert check.parameters_difference == check.figure_parameters - check.ours_parameters
        assert sum(part.parameters for part in check.parameter_parts) == check.parameters_difference
    json.dumps(check.to_json(), allow_nan=False)


def published_swinmr(side: int) -> tuple[nn.Module, tuple]:
    # img_size only sizes the masks that are made beforehand.
    model = SwinIR(
        img_size=64,
        in_chans=1,
        upscale=1,
        window_size=8,
        depths=[6] * 6,
        num_heads=[6] * 6,
        embed_dim=180,
        mlp_ratio=2,
        upsampler="",
        resi_connection="1conv",
    )
    return model, (torch.zeros(1, 1, side, side),)


@pytest.mark.slow
def test_thop_on_published_swinmr_is_explained():
    # Windows have a fixed size, so that everything is linear in pixels: 16 x 16 is 256 x 256 divided by 256.
    check = cross_check_module(*published_swinmr(16), "thop")
    check_parts(check)
    attention = sum(part.macs for part in check.parts if part.operator.startswith("attention products"))
    others = check.difference - attention
    assert attention * 256 == -54_358_179_840
    assert 256 * others / 1e9 == pytest.approx(6.20, abs=0.01)
    assert check.parameters_difference == -48_600
    assert [part.parameter for part in check.parameter_parts] == [
        "WindowAttention.relative_position_bias_table"
    ]
    assert check.inexact
    assert check.exact_macs is None
    assert check.agrees


@pytest.mark.slow
def test_fvcore_on_resnet50_is_norms_and_pooling():
    # 4.11 G as fvcore prints it, against 4.09.
    check = cross_check_module(torchvision.models.resnet50(), (torch.zeros(1, 3, 64, 64),), "fvcore")
    check_parts(check)
    assert {part.operator for part in check.parts} == {"aten::batch_norm", "aten::adaptive_avg_pool2d"}
    assert (
        check.exact_macs
        == check.ours
        == count_forward(torchvision.models.resnet50(), (torch.zeros(1, 3, 64, 64),)).macs
    )
    assert check.agrees
    assert not check.inexact


def test_fvcore_misses_the_attention_operator():
    module = nn.MultiheadAttention(16, 2, batch_first=True)

    class SelfAttention(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = module

        def forward(self, x):
            return self.attention(x, x, x, need_weights=False)[0]

    check = cross_check_module(SelfAttention(), (torch.zeros(2, 9, 16),), "fvcore")
    check_parts(check)
    assert check.agrees


# Operators that fvcore sees but has no rule for (the reason names them), and what jit cannot trace.
FVCORE_CANNOT = {
    "custom autograd function",
    "Linear, quantized dynamically",
    "matrix_power 3",
    "multi_dot",
}


@pytest.mark.sampled(42)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_parts_sum_to_the_difference_in_every_case(case):
    module, inputs = case.build()
    for counter in ("fvcore", "thop"):
        check = cross_check_module(module, inputs, counter)
        assert check.ours == case.macs
        if check.status == "ok":
            check_parts(check)
        else:
            assert check.status == "raised"
            assert check.reason
        if counter == "fvcore":
            assert bool(check.agrees) == (case.name not in FVCORE_CANNOT)


@pytest.mark.usefixtures("forked")
def test_in_a_process_of_its_own():
    checks = cross_check(TINY_CONFIG, timeout_s=120)
    assert [check.counter for check in checks] == ["fvcore", "thop"]
    for check in checks:
        check_parts(check)
        assert check.agrees
        assert check.input_shapes == [[1, 1, 64, 64]]
        assert check.seconds > 0
        assert check.version
    assert second_opinion(checks) is checks[0]


@pytest.fixture
def absent_packages():
    """Packages that the processes of the test do not find."""
    return []


@pytest.fixture
def forked(monkeypatch, tmp_path, absent_packages):
    """The process of a counter is a fork of one that has imported torch, rather than a new interpreter."""

    def ask(module, request, timeout_s, *, in_our_group):
        # It dies with the measuring process, whose group is ended as a whole.
        assert in_our_group
        # Both counters are asked at once.
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        script, question = folder / "process.py", folder / "question.json"
        script.write_text(code_without(python_command(module)[2], *absent_packages))
        question.write_text(request)
        with question.open() as stdin:
            run = _fork_server().run([str(script)], tmp_path, dict(os.environ), stdin, timeout_s)
        return ended_with(run.stdout, run.stderr, run.returncode)

    monkeypatch.setattr(processes, "ask_once", ask)


@pytest.mark.parametrize("absent", [("fvcore",), ("thop",), ("fvcore", "thop")], ids=" and ".join)
@pytest.mark.usefixtures("forked")
def test_absent_counters_are_records(absent_packages, absent):
    absent_packages += absent
    checks = cross_check(TINY_CONFIG, timeout_s=120)
    for check in checks:
        if check.counter in absent:
            assert check.status == "missing"
            assert "No module named" in check.reason
            assert check.figure is None
            assert check.agrees is None
            assert check.ours > 0
        else:
            check_parts(check)
    shown = second_opinion(checks)
    assert (shown.counter if shown else None) == {("fvcore",): "thop", ("thop",): "fvcore"}.get(absent)


@pytest.mark.slow
def test_a_failed_process_is_a_record():
    (check,) = cross_check({"model": {"net_type": "no such network"}}, counters=("fvcore",), timeout_s=120)
    assert check.status == "crashed"
    assert "no such network" in check.reason or "net_type" in check.reason


def test_a_timeout_is_a_record():
    (check,) = cross_check(TINY_CONFIG, counters=("thop",), timeout_s=0.01)
    assert (check.status, check.reason) == ("timeout", "no answer within 0.01 s")


def test_a_killed_process_is_a_record(monkeypatch):
    monkeypatch.setattr(processes, "ask_once", lambda *_, **__: ended_with("", "", -9))
    (check,) = cross_check(TINY_CONFIG, counters=("fvcore",))
    assert (check.status, check.reason) == ("killed", "the process ended by signal 9: no message")


def test_what_a_network_prints_does_not_spoil_the_answer(monkeypatch):
    record = CrossCheck.told(
        counter="fvcore",
        status="ok",
        size="small",
        convention="",
        inexact=False,
        figure=5,
        ours=5,
        difference=0,
    ).to_json()

    chatty = ended_with(f"hello\n{json.dumps(record)}\n", "", 0)
    monkeypatch.setattr(processes, "ask_once", lambda *_, **__: chatty)
    (check,) = cross_check(TINY_CONFIG, counters=("fvcore",))
    assert check.figure == 5


@pytest.mark.parametrize(
    ("options", "wrong"), [({"counters": ("ptflops",)}, "ptflops"), ({"size": "huge"}, "huge")]
)
def test_unknown_counters_and_sizes_are_refused(options, wrong):
    with pytest.raises(ValueError, match=wrong):
        cross_check(TINY_CONFIG, **options)

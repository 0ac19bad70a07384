"""What a plan tries beside recomputation: the host's memory, the layout of images, the batch of the validation."""

import json

import numpy as np
import pytest
import torch

from swinmr_profiling.configs import config_from_dict
from swinmr_profiling.models.registry import build_model
from swinmr_profiling.profiler.batch_size.budget import budget_on
from swinmr_profiling.profiler.plan.candidates import (
    Base,
    bases,
    by_moved_bytes,
    changes_of_result,
    has_convolutions,
    moved_bytes,
    placements,
)
from swinmr_profiling.profiler.plan.plan_file import (
    PlannedSetting,
    config_in_setting,
    config_with_plan,
    described,
    read_plan,
)
from swinmr_profiling.profiler.plan.training_plan import TrainingPlanner
from swinmr_profiling.profiler.prediction.replay import replay
from swinmr_profiling.profiler.prediction.trace import trace_cache
from swinmr_profiling.profiler.prediction.trace.storage_trace import CATEGORIES, Trace
from swinmr_profiling.profiler.prediction.trace.traced_step import trace_training
from swinmr_profiling.profiler.record.memory_fingerprint import memory_fingerprint
from swinmr_profiling.scripts import plan_training
from tests.profiler.plan.made_plan import setting
from tests.training.conftest import TINY_RUN, merged

MIB = 2**20
# A few large weights and a small image: what is alive all the time is most of its memory.
HEAVY = {**TINY_RUN, "model": {"net_type": "dit_denoiser", "img_size": 32, "patch_size": 8, "embed_dim": 192,
                               "depth": 2, "num_heads": 2}, "system": {"mixed_precision": "bf16"},
         "training": {"total_steps": 2, "optimizer": {"type": "adamw"}, "validate_every_steps": 2}}  # fmt: skip
HEAVY["data"] = {**TINY_RUN["data"], "use_patches": False}
UNET = {"model": {"net_type": "unet_denoiser", "img_size": 64, "base_channels": 32, "channel_multipliers": [1, 2],
                  "num_res_blocks": 1, "attention_resolutions": [32], "head_channels": 32},
        "data": {"use_patches": False}, "system": {"mixed_precision": "bf16"}}  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def own_traces(tmp_path_factory):
    trace_cache.keep_in(tmp_path_factory.mktemp("traces"))
    yield
    trace_cache.keep_in(None)


def card(total_bytes):
    """A card without headroom, and what of it is left for PyTorch's allocator."""
    made = budget_on("a card", total_bytes, None, torch_version=torch.__version__, headroom_share=0)
    return made, made.usable_bytes - made.context_bytes - made.workspace_bytes


def reserved(config, batch_size, **training):
    """Of steps of one micro-batch and a validation."""
    training = {"on_host": [], **training}
    config = config.model_copy(update={"training": config.training.model_copy(update=training)})
    return replay(trace_training(build_model(config), config, batch_size)).peak_reserved_bytes


def test_what_could_wait_on_the_host():
    def of(training=None, **system):
        return placements(config_from_dict({**UNET, "training": training or {}, "system": system}))

    assert of({"optimizer": {"type": "sgd", "momentum": 0}, "ema_decay": 0}) == [("activations",)]
    assert of({"optimizer": {"type": "adam_8bit"}}, compile=True) == [("ema",)]
    assert of({"strategy": "zero1"}) == []
    assert len(of()) == 7
    assert of()[-1] == ("ema", "optimizer_states", "activations")
    assert of({"on_host": ["activations"], "ema_decay": 0}) == [("activations", "optimizer_states")]


def test_what_changes_in_the_result():
    config = config_from_dict({**UNET, "system": {}})
    fp32, bf16 = bases(config, card(2**33)[0], allow_patch=False)
    turned = bf16.in_other_layout()
    assert turned.in_other_layout() == bf16
    assert list(changes_of_result(config, fp32, 2, 2, batch_norm=True)) == [
        "BatchNorm normalises 2 samples at a time, not 4"
    ]
    assert list(changes_of_result(config, turned, 4, 1, batch_norm=True)) == [
        "bf16 in place of fp32: other rounding",
        "channels-last layout: other rounding",
    ]
    # What waits elsewhere is the same numbers.
    placed = fp32.with_on_host(("ema", "activations"))
    assert placed.on_host == ["ema", "activations"]
    assert list(changes_of_result(config, placed, 4, 1, batch_norm=False)) == []


@pytest.mark.slow
def test_the_average_waits_on_the_host_before_anything_is_computed_again(tmp_path, capsys):
    """And the run with that plan ends with the very weights of the run without."""
    from swinmr_profiling import train

    content = {**HEAVY, "paths": {"root": str(tmp_path / "runs")}}
    config = config_from_dict(content)
    needed = reserved(config, 4)
    # More than the average is too little: states go as well; and more than all three no setting here spares.
    average = sum(p.nbytes for p in build_model(config).module.parameters())
    assert average > 4 * MIB
    total = needed - 2 * MIB + (2**33 - card(2**33)[1])
    plain = tmp_path / "config.json"
    plain.write_text(json.dumps(content))
    output = tmp_path / "plan.json"
    arguments = [
        "--config",
        str(plain),
        "--gpu-memory",
        f"{total // MIB}MiB",
        "--headroom",
        "0%",
        "--batch",
        "4",
    ]
    assert plan_training.main([*arguments, "--micro-batch", "4", "--output", str(output)]) == 0
    printed = capsys.readouterr().out
    found = read_plan(output)
    assert found.setting.on_host == ["ema"]
    assert any("no GPU has confirmed it yet" in note for note in found.notes)
    assert (found.setting.checkpointing, found.setting.recomputed_macs) == ("none", 0)
    buffers = sum(b.nbytes for b in build_model(config).module.buffers())
    assert (found.setting.to_host_bytes, found.setting.to_device_bytes) == (average + buffers, 0)
    assert "on the host: ema; over the bus in each optimizer step 0.0" in printed
    assert "changes the result, 1: nothing but the order of sums" in printed
    keys = [
        (s.recomputed_macs, s.recomputed_bytes, s.to_host_bytes + s.to_device_bytes) for s in found.settings
    ]
    assert keys == sorted(keys)
    planned, message = config_with_plan(
        config, output, loss=found.loss, config_file="c.json", total_bytes=None
    )
    assert "on the host: ema" in message
    assert reserved(planned, 4, on_host=["ema"]) <= card(total // MIB * MIB)[1] < needed
    weights = []
    for name, changes in (
        ("with", {"training.plan": str(output)}),
        ("without", {"data.batch_size": 4}),
    ):
        plain.write_text(json.dumps(merged(content, {"experiment_name": name, **changes})))
        assert train.main(["--config", str(plain), "--device", "cpu"]) == 0
        file = next((tmp_path / "runs" / name / "checkpoints").glob("step_*2.pth"))
        weights.append(torch.load(file, weights_only=True))
    assert len(weights[0]["params"]) > 10
    for part in ("params", "params_ema"):
        for key, value in weights[0][part].items():
            assert torch.equal(value, weights[1][part][key]), (part, key)


@pytest.mark.slow
def test_everything_goes_to_the_host_where_nothing_else_fits():
    config = config_from_dict(merged(HEAVY, {"data.batch_size": 1}))
    names = ["ema", "optimizer_states", "activations"]
    least = reserved(config, 1, on_host=names)
    budget, room = card(least + (2**33 - card(2**33)[1]))
    assert room == least
    plan = TrainingPlanner(config, budget, 1).plan(None)
    assert plan.setting.fits
    assert plan.setting.needed_bytes - budget.context_bytes - budget.workspace_bytes <= room
    states = 2 * sum(p.nbytes for p in build_model(config).module.parameters() if p.requires_grad)
    assert plan.setting.to_device_bytes >= states


@pytest.mark.slow
def test_of_a_validation_that_is_too_large_the_batch_is_lowered_first():
    content = merged(
        TINY_RUN, {"model.img_size": 96, "data.val_batch_size": 32, "system.mixed_precision": "bf16"}
    )
    config = config_from_dict(content)

    def at(val_batch_size):
        data = config.data.model_copy(update={"val_batch_size": val_batch_size})
        return reserved(config.model_copy(update={"data": data}), 2)

    assert at(8) < at(16) < at(32)
    budget, _ = card(at(8) + (2**33 - card(2**33)[1]))
    plan = TrainingPlanner(config, budget, 2, only_micro_batch=2).plan(None)
    assert [(s.val_batch_size, s.checkpointing, s.on_host) for s in plan.settings] == [(8, "none", [])]
    assert plan.setting.changes == []


@pytest.mark.slow
@pytest.mark.parametrize(("content", "has"), [(UNET, True), (HEAVY, True)])
def test_the_other_layout_is_tried_where_a_step_holds_less_in_it(content, has):
    config = config_from_dict(content)
    assert has_convolutions(build_model(config).module) is has
    small, _ = card(2**29)
    planner = TrainingPlanner(config, small, 4, only_micro_batch=4)
    planner._has_convolutions = True
    (base,) = bases(config, small, allow_patch=False)
    own = planner._step_planner(base)
    found = planner._helpful_layout(base, own)
    turned = planner._step_planner(base.in_other_layout())
    is_less = turned.peak("none", 4) < 0.99 * own.peak("none", 4)
    assert (found is not None) == is_less
    if found is not None:
        assert isinstance(found[0], Base)
        assert found[0].channels_last


@pytest.mark.slow
def test_moved_bytes_of_more_micro_batches_than_are_traced():
    """A step is traced with two micro-batches at most: each further one moves what the second moved."""
    training = {
        "on_host": ["activations", "optimizer_states"],
        "ema_decay": 0.0,
        "optimizer": {"type": "adamw"},
    }
    config = config_from_dict(
        {**HEAVY, "training": training, "data": {"use_patches": False, "batch_size": 1}}
    )
    planner = TrainingPlanner(config, card(2**33)[0], 4, only_micro_batch=1)
    (base,) = bases(config, planner.budget, allow_patch=False)
    own = planner._step_planner(base)
    traced = planner._predict(base, own, "none", 1).trace
    four = config.model_copy(update={"training": config.training.model_copy(update={"accumulate": 4})})
    direct = trace_training(build_model(four), four, 1, validation=False)
    one = own.quick_trace("none", 1).moved_bytes
    assert list(moved_bytes(one, traced.moved_bytes, 4)) == direct.moved_bytes


def made_trace(sizes, categories, moved):
    """Allocations that are all alive at the end, in one step."""
    count = len(sizes)
    return Trace(
        batch_size=1,
        sizes=np.array(sizes, dtype=np.int64),
        phases=np.zeros(count, dtype=np.int8),
        categories=np.array([CATEGORIES.index(name) for name in categories], dtype=np.int8),
        operators=np.zeros(count, dtype=np.int32),
        operator_names=["made"],
        events=np.arange(1, count + 1, dtype=np.int32),
        event_phases=np.zeros(count, dtype=np.int8),
        step_starts=[0],
        moved_bytes=moved,
    )


def test_what_moves_the_least_comes_first():
    """An average of 10 KiB crosses the bus once, states of 8 KiB twice; activations 12 KiB each way, for each of two
    micro-batches."""
    kib = 1024
    names = ["ema", "optimizer_state", "saved_activations"]
    plain = made_trace([10 * kib, 8 * kib, 12 * kib], names, [0, 0])
    hosted = made_trace([10 * kib, 8 * kib], names[:2], [12 * kib, 12 * kib])
    possible = [("activations",), ("optimizer_states",), ("ema",), ("ema", "optimizer_states")]

    def order(room, accumulate=2, own=()):
        return by_moved_bytes(possible, own, (plain, hosted), accumulate, room * kib)

    everything = [
        (10 * kib, ("ema",)),
        (16 * kib, ("optimizer_states",)),
        (26 * kib, ("ema", "optimizer_states")),
        (48 * kib, ("activations",)),
    ]
    assert order(22) == everything
    assert order(21) == [everything[0], *everything[2:]]
    assert order(18) == everything[2:]
    assert order(12) == [everything[2]]
    assert order(11) == []
    assert order(18, accumulate=1) == [(24 * kib, ("activations",)), everything[2]]
    assert (0, ("ema",)) in order(30, own=("ema",))


def test_a_planned_setting_is_a_config():
    raw = setting(2, 4, channels_last=True, on_host=["ema", "activations"], patch_size=None, val_batch_size=3)
    planned = PlannedSetting.model_validate(raw)
    config = config_in_setting(config_from_dict(UNET), planned)
    assert config.system.channels_last
    assert config.training.on_host == ["ema", "activations"]
    assert config.data.val_batch_size == 3
    assert described(planned) == ["checkpointing none", "channels-last", "on the host: ema and activations"]
    again = config_in_setting(config, PlannedSetting.model_validate(setting(2, 4, patch_size=None)))
    assert not again.system.channels_last
    assert again.training.on_host == []
    prints = {memory_fingerprint(one) for one in (config, again)}
    assert len(prints) == 2


def test_the_other_layout_changes_rounding_alone():
    """Gradients of a step in double precision, which the layouts' kernels sum in another order."""
    config = config_from_dict(merged(UNET, {"model.img_size": 16, "model.base_channels": 8, "model.num_groups": 4,
                                            "model.attention_resolutions": [8], "model.head_channels": 8}))  # fmt: skip
    found = []
    for layout in (torch.contiguous_format, torch.channels_last):
        torch.manual_seed(0)
        built = build_model(config)
        module = built.module.double()
        with torch.no_grad():
            for parameter in module.parameters():
                # A denoiser begins with zeros, behind which all gradients are zero.
                if not parameter.any():
                    parameter.normal_(std=0.1)
        module.to(memory_format=layout)
        image, times = built.example_inputs(2, dtype=torch.float64, which="training")
        module(image.to(memory_format=layout), times).square().sum().backward()
        found.append([parameter.grad for parameter in module.parameters()])
    for ours, other in zip(*found, strict=True):
        torch.testing.assert_close(ours, other, rtol=1e-9, atol=1e-11)

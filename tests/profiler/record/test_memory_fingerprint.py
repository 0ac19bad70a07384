"""The fingerprint changes with what changes memory, and with nothing else."""

import copy
from functools import cache

import numpy as np
import pytest

from swinmr_profiling.configs import config_from_dict
from swinmr_profiling.models.registry import build_model
from swinmr_profiling.profiler.prediction.trace.traced_step import trace_training
from swinmr_profiling.profiler.record.memory_fingerprint import memory_fingerprint

BASE = {
    "experiment_name": "x",
    "model": {"net_type": "swinir", "img_size": 64, "depths": [2], "num_heads": [2], "embed_dim": 12},
}


DENOISER = {
    "experiment_name": "x",
    "model": {
        "net_type": "unet_denoiser",
        "img_size": 16,
        "in_chans": 2,
        "base_channels": 8,
        "channel_multipliers": [1, 2],
        "num_res_blocks": 1,
        "attention_resolutions": [8],
        "head_channels": 8,
        "num_groups": 4,
    },
    "training": {"diffusion": {"condition_dropout": 0.1}},
    "evaluation": {"sampling": {"validation_steps": 10}},
}


def config_of(base, changes):
    raw = copy.deepcopy(base)
    for path, value in changes.items():
        section, *keys = path.split("__")
        place = raw.setdefault(section, {})
        for key in keys[:-1]:
            place = place.setdefault(key, {})
        place[keys[-1]] = value
    return config_from_dict(raw)


def fingerprint(**changes):
    return memory_fingerprint(config_of(BASE, changes))


@pytest.mark.parametrize(
    "change",
    [
        {"model__embed_dim": 24},
        {"model__drop_path_rate": 0.0},
        {"model__img_size": 96},
        {"data__patch_size": 32},
        {"data__val_batch_size": 2},
        {"training__loss__components__frequency__weight": 0},
        {"training__optimizer__type": "sgd"},
        {"training__optimizer__weight_decay": 0.1},
        {"training__gradient__clip_norm": 1.0},
        {"training__gradient_checkpointing": "full"},
        {"training__ema_decay": 0},
        {"training__accumulate": 2},
        {"system__mixed_precision": "bf16"},
        {"system__compile": True},
        {"system__channels_last": True},
    ],
)  # fmt: skip
def test_what_changes_memory_changes_it(change):
    assert fingerprint(**change) != fingerprint()


@pytest.mark.parametrize(
    "change",
    [
        {"data__batch_size": 16},
        {"data__batch_size": "auto"},
        {"data__num_workers": 7},
        {"paths__root": "elsewhere"},
        {"model__init_type": "xavier_normal"},
        {"training__loss__components__frequency__weight": 0.5},
        {"training__optimizer__lr": 1.0},
        # Of networks that make their image in one call.
        {"evaluation__sampling__validation_steps": 10},
        {"training__diffusion__objective": "v"},
        {"training__total_steps": 7},
        {"system__seed": 7},
    ],
)
def test_what_does_not_leaves_it(change):
    assert fingerprint(**change) == fingerprint()


def test_the_same_network_kept_elsewhere_is_the_same():
    def of(folder):
        own = {"net_type": "custom", "target": "own:Net", "input_shapes": [[1, 8, 8]], **folder}
        return memory_fingerprint(config_from_dict({"model": own}))

    assert of({"target_folder": "/elsewhere"}) == of({})


def test_true_is_bf16_and_three_accumulated_need_what_two_need():
    assert fingerprint(system__mixed_precision=True) == fingerprint(system__mixed_precision="bf16")
    assert fingerprint(training__accumulate=3) == fingerprint(training__accumulate=2)


def test_decoupled_weight_decay_needs_nothing():
    decoupled = {"training__optimizer__type": "adamw"}
    assert fingerprint(**decoupled, training__optimizer__weight_decay=0.1) == fingerprint(**decoupled)


ANCESTRAL = {"evaluation__sampling__sampler": "ancestral"}


@cache
def denoisers_trace():
    config = config_of(DENOISER, {})
    return trace_training(build_model(config), config, 2)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "change",
    [
        {"evaluation__sampling__guidance": 3.0},
        {"evaluation__sampling__validation_steps": 0},
        {"evaluation__sampling__validation_steps": 1},
        {"evaluation__sampling__validation_steps": 2},
        ANCESTRAL,
        {"evaluation__sampling__clip": False},
        {"evaluation__sampling__data_consistency": False},
        {"training__diffusion__objective": "v"},
        {"training__diffusion__objective": "x0"},
        {"data__phantom__coils": 4},
        {"training__optimizer__weight_decay": 0.1},
        # What changes nothing, all at once: the same trace, and the same fingerprint.
        {
            "evaluation__sampling__validation_steps": 11,
            "evaluation__sampling__samples_per_slice": 4,
            "evaluation__sampling__sampling_steps": 9,
            "training__diffusion__condition_dropout": 0.4,
            "training__diffusion__schedule": "cosine",
            "training__diffusion__min_snr_gamma": 5.0,
            "data__normalisation": "max",
        },
    ],
    ids=str,
)
def test_a_denoisers_changes_exactly_where_its_trace_does(change):
    """Every allocation and release of two steps and a validation batch, beside the hash that a trace is kept under."""
    config = config_of(DENOISER, change)
    usual, trace = denoisers_trace(), trace_training(build_model(config), config, 2)
    same = all(np.array_equal(getattr(usual, of), getattr(trace, of)) for of in ("sizes", "events"))
    assert (memory_fingerprint(config) == memory_fingerprint(config_of(DENOISER, {}))) == same


def test_how_strong_guidance_is_and_how_long_sampling_lasts_do_not_matter():
    guided = [config_of(DENOISER, {"evaluation__sampling__guidance": g}) for g in (0.0, 2.0, 3.0)]
    assert len({memory_fingerprint(config) for config in guided}) == 1
    steps = {**ANCESTRAL, "evaluation__sampling__guidance": 3.0}
    counts = [{**steps, "evaluation__sampling__validation_steps": n} for n in (3, 4, 50)]
    assert len({memory_fingerprint(config_of(DENOISER, change)) for change in counts}) == 1


def test_what_only_sampling_knows_is_left_out_without_it():
    silent = {"evaluation__sampling__validation_steps": 0}
    guided = {**silent, "evaluation__sampling__guidance": 3.0, "data__phantom__coils": 4}
    assert memory_fingerprint(config_of(DENOISER, guided)) == memory_fingerprint(config_of(DENOISER, silent))

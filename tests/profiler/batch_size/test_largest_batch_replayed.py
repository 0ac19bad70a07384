"""The largest batch of real networks, against the whole range of batches replayed one by one."""

import numpy as np
import pytest

from swinmr_profiling.configs import config_from_dict
from swinmr_profiling.models.registry import build_model
from swinmr_profiling.profiler.allocator.allocation_order import packed
from swinmr_profiling.profiler.batch_size.budget import Budget
from swinmr_profiling.profiler.batch_size.fit import largest_batch, needed_bytes
from swinmr_profiling.profiler.prediction.predict import size_entry
from swinmr_profiling.profiler.prediction.replay import live_peak, replay
from swinmr_profiling.profiler.prediction.trace.traced_step import trace_training
from swinmr_profiling.profiler.prediction.trace_family import TraceFamily
from tests.conftest import TINY_SWINIR
from tests.profiler.batch_size.test_rule import by_its_words
from tests.training_profiles import setting, typed_setting

NETWORKS = {
    "swinir": TINY_SWINIR,
    "unet": {
        "net_type": "unet_denoiser",
        "img_size": 16,
        "base_channels": 16,
        "channel_multipliers": [1, 2],
        "num_res_blocks": 1,
        "num_groups": 8,
        "head_channels": 16,
    },
    "dit": {
        "net_type": "dit_denoiser",
        "img_size": 32,
        "patch_size": 4,
        "embed_dim": 48,
        "depth": 2,
        "num_heads": 2,
    },
}
OUTSIDE = 400 * 2**20 + 17


def family_of(model, **data):
    config = config_from_dict({"model": model, "data": {"use_patches": False, **data}})
    built = build_model(config)
    return TraceFamily(lambda batch: trace_training(built, config, batch), check=True)


def setting_of(family):
    """What a profile keeps of it: the sizes traced by themselves, and the allocations."""
    rows = {1: size_entry(family.at(1), replay(family.at(1)), None)}
    kept = {
        "sizes": {str(batch): row for batch, row in rows.items()},
        "affine_from_batch": 2,
        "allocations": packed(family.affine.order()),
        "validation": None,
        "ddp_bucket_bytes": 0,
    }
    return typed_setting({**setting({1: (1, 1)}), **kept})


def whole_range(family, most_bytes):
    """Batch -> reserved bytes, of every batch whose live bytes are no more; the last is the first that has more."""
    found = {}
    for batch in range(1, 65536):
        trace = family.at(batch)
        if live_peak(trace)[0] > most_bytes:
            return found
        found[batch] = replay(trace).peak_reserved_bytes
    return found


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", NETWORKS)
def test_twenty_budgets_against_every_batch(name):
    family = family_of(NETWORKS[name])
    assert family.checked
    setting = setting_of(family)
    least, most = (replay(family.at(batch)).peak_reserved_bytes for batch in (1, 120))
    reserved = whole_range(family, most)
    assert len(reserved) >= 120
    differ = 0
    # The second of each pair is one byte less than some batch needs.
    edges = [value for batch in (5, 40, 90) for value in (reserved[batch], reserved[batch] - 1)]
    for allowed in [*np.linspace(least - 1, most, 14).astype(int).tolist(), *edges]:
        budget = Budget("card", allowed + OUTSIDE, headroom_share=0, context_bytes=OUTSIDE)
        fitting = {batch for batch, size in reserved.items() if size <= allowed}
        expected = by_its_words(fitting, max(reserved))
        assert largest_batch(setting, budget) == expected
        if expected is not None:
            assert needed_bytes(setting, expected, budget) == reserved[expected] + OUTSIDE
            differ += expected + 1 != min(batch for batch in reserved if reserved[batch] > allowed)
    # For some of them the first batch that does not fit is not an answer; this U-Net's memory grows with each.
    assert differ or name == "unet"

"""State dicts in the published form, against the independent implementation that spandrel carries."""

import pytest
import torch
from spandrel.architectures.SwinIR.__arch.SwinIR import SwinIR as ReferenceSwinIR

from swinmr_profiling.models.swin.official_state_dict import official_state_dict, without_computed
from swinmr_profiling.models.swin.swinir import SwinIR
from tests.models.test_swinir_equality import CASES, TINY, with_shared_weights


@pytest.mark.parametrize("name", CASES)
def test_every_form_equals_the_reference_key_by_key(name):
    """Names, their order, shapes and values: masks and indices too, which the reference computes itself."""
    reference, ours = with_shared_weights(CASES[name][0])
    theirs, got = reference.state_dict(), official_state_dict(ours)
    assert list(got) == list(theirs)
    for key, tensor in theirs.items():
        assert got[key].dtype == tensor.dtype, key
        assert torch.equal(got[key], tensor), key
    reference.load_state_dict(got, strict=True)


def test_the_published_network_has_544_tensors():
    """490 weights, 36 indices, 18 masks: one in every second of 36 blocks. At 256 x 256 a mask is 1024 x 64 x 64."""
    network = SwinIR(embed_dim=12)
    state = official_state_dict(network)
    assert len(state) == 544
    mask = state["layers.5.residual_group.blocks.5.attn_mask"]
    assert mask.shape == (1024, 64, 64)
    # Of 32 x 32 windows 31 at the right and 31 at the bottom have two parts, the corner four: a pair of pixels is of
    # different parts in 2 x 32 x 32 of 64 x 64, in the corner in 64 x 64 - 4 x 16 x 16.
    assert int((mask == -100).sum()) == 62 * 2048 + 3072
    assert len({tensor.data_ptr() for key, tensor in state.items() if "mask" in key or "index" in key}) == 2


def test_an_image_size_that_is_no_whole_number_of_windows_is_rounded_up():
    """The official network cannot be built at such a size; users build the next one."""
    ours = SwinIR(**{**TINY, "img_size": (30, 41)})
    ReferenceSwinIR(**{**TINY, "img_size": (32, 48)}).load_state_dict(official_state_dict(ours), strict=True)


def test_other_networks_keep_their_own_tensors():
    class Own(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("attn_mask", torch.zeros(2))

    own = Own()
    assert list(official_state_dict(own)) == ["attn_mask"]
    assert set(without_computed({"attn_mask": 1, "layers.0.attn_mask": 2}, own.state_dict())) == {"attn_mask"}

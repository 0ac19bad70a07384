"""Building and feeding networks: what breaks says where."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from swinmr_profiling.profiler.counting.dispatch.engine import CountingMode
from swinmr_profiling.profiler.counting.module_tree import ModuleTracker
from swinmr_profiling.profiler.pipelines.defined.component_counts import DenoiserCall, denoiser_arguments
from swinmr_profiling.profiler.pipelines.defined.components import build_on_meta
from swinmr_profiling.profiler.pipelines.defined.definition import Component, load_pipeline
from swinmr_profiling.profiler.pipelines.defined.libraries import find_class
from swinmr_profiling.profiler.pipelines.defined.measure import FusedAttention, measure_call
from swinmr_profiling.profiler.pipelines.errors import PipelineError

pytest.importorskip("diffusers")
CALL = DenoiserCall(1, 8, 8, 5)


def test_a_broken_config_is_one_line():
    vae = load_pipeline("sd15").vae
    broken = replace(vae, config={**vae.config, "block_out_channels": [128, 256]})
    with pytest.raises(PipelineError, match="AutoencoderKL cannot be built from its config") as caught:
        build_on_meta(broken)
    assert "\n" not in str(caught.value)


def test_another_network_than_recorded_is_refused():
    vae = load_pipeline("sd15").vae
    with pytest.raises(PipelineError, match="83,653,863 parameters, not the 1 "):
        build_on_meta(replace(vae, parameters=1))


def test_a_misspelt_key_is_refused():
    vae = load_pipeline("sd15").vae
    with pytest.raises(PipelineError, match="takes no latent_chanels"):
        build_on_meta(replace(vae, config={**vae.config, "latent_chanels": 4}))


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("diffusers.UNet2DConditionModl", "UNet2DConditionModel"),
        ("os.path", "one of diffusers or transformers"),
    ],
)
def test_unknown_classes(path, words):
    with pytest.raises(PipelineError, match=words):
        find_class(path)


def test_initialisation_is_put_back():
    before = {name: getattr(nn.init, name) for name in dir(nn.init)}
    with pytest.raises(PipelineError):
        build_on_meta(Component("diffusers.AutoencoderKL", {"block_out_channels": "wrong"}))
    assert {name: getattr(nn.init, name) for name in dir(nn.init)} == before


def test_an_argument_nobody_knows_is_named():
    class Denoiser(nn.Module):
        config = type("Config", (), {"in_channels": 4, "cross_attention_dim": 8})()

        def forward(self, sample, timestep, encoder_hidden_states, depth_map):
            return sample

    with pytest.raises(PipelineError, match="'depth_map'"):
        denoiser_arguments(Denoiser(), CALL)


def test_a_signature_is_enough():
    """No list of models: a network of the user's own with known arguments is fed by its config."""

    class Denoiser(nn.Module):
        config = type("Config", (), {"in_channels": 6, "caption_channels": 10, "cross_attention_dim": 3})()

        def forward(self, hidden_states, timestep, encoder_hidden_states, encoder_attention_mask, extra=None):
            return hidden_states

    arguments = denoiser_arguments(Denoiser(), CALL)
    shapes = {name: tuple(tensor.shape) for name, tensor in arguments.items()}
    assert shapes == {
        "hidden_states": (1, 6, 8, 8),
        "timestep": (1,),
        "encoder_hidden_states": (1, 5, 10),
        "encoder_attention_mask": (1, 5),
    }


def test_fused_attention_has_the_products_and_not_the_scores():
    # 2 x 3 heads, 50 queries, 70 keys, width 16: 2*3*50*70*(16+16) MACs; the result is 2*3*50*16 numbers of 4 bytes.
    def attend(module):
        # Written ones: what is read and was only allocated, another kernel would have made.
        q, k, v = (torch.ones(2, 3, n, 16, device="meta") for n in (50, 70, 70))
        return nn.functional.scaled_dot_product_attention(q, k, v)

    measured = measure_call(nn.Identity(), attend)
    assert measured.count.by_kind["attention"] == measured.count.macs == 672_000
    scores, inputs, result = 4 * 2 * 3 * 50 * 70, 4 * 2 * 3 * 190 * 16, 4 * 2 * 3 * 50 * 16
    # Beside its result the kernel keeps a normaliser per query.
    assert inputs + result <= measured.activation_peak_bytes < inputs + result + scores / 10


def test_fused_attention_leaves_real_tensors_alone():
    q = torch.randn(1, 2, 4, 8)
    expected = nn.functional.scaled_dot_product_attention(q, q, q)
    with FusedAttention():
        assert torch.equal(nn.functional.scaled_dot_product_attention(q, q, q), expected)


def test_an_operator_without_a_formula_is_an_error():
    with pytest.raises(PipelineError, match="aten::_linalg"):
        measure_call(nn.Identity(), lambda module: torch.linalg.det(torch.empty(4, 4, device="meta")))


@pytest.mark.parametrize("shapes", [((3, 1, 4), (2, 4)), ((5,), (5,)), ((2, 3), (1, 1))])
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div"])
def test_elementwise_results_under_the_counter_are_what_the_operators_return(name, shapes):
    operator = getattr(torch, name)
    first, second = (torch.ones(shape, dtype=torch.bfloat16) for shape in shapes)
    real = operator(first, second)
    permuted = operator(torch.ones(4, 3).t(), torch.ones(3, 4))
    mixed = operator(first, second.double())
    numbered = operator(first, 2)
    with CountingMode(ModuleTracker(nn.Identity())):
        fast = operator(first.to("meta"), second.to("meta"))
        fast_permuted = operator(torch.ones(4, 3, device="meta").t(), torch.ones(3, 4, device="meta"))
        fast_mixed = operator(first.to("meta"), second.double().to("meta"))
        fast_numbered = operator(first.to("meta"), 2)
        untouched = operator(first, second)
    pairs = ((real, fast), (permuted, fast_permuted), (mixed, fast_mixed), (numbered, fast_numbered))
    for expected, found in pairs:
        assert found.is_meta
        assert (found.shape, found.dtype, found.stride()) == (
            expected.shape,
            expected.dtype,
            expected.stride(),
        )
    assert torch.equal(untouched, real)

"""Caches, replaced forwards, hooks, adapters, offloading, quantised weights, tiles: counted as they ran."""

import pytest
import torch
from torch import nn

from swinmr_profiling.profiler.compute import create_profiler
from swinmr_profiling.profiler.counting import count_forward
from tests.profiler.pipelines.watched_pipelines import part, tiny, watched
from tests.tiny_pipelines import SIDE, TOKENS, VAE_FACTOR

pytest.importorskip("diffusers")
LATENT = SIDE // VAE_FACTOR
CALL = dict(prompt="a cat", height=SIDE, width=SIDE, num_inference_steps=4)
# PNDM: one denoiser time more.
TIMES = 5


def every_second(forward):
    """A forward that keeps its result for the next call, and how often it was called and did run."""
    seen = {"calls": 0, "runs": 0}

    def cached(*args, **kwargs):
        seen["calls"] += 1
        if seen["calls"] % 2:
            seen["runs"] += 1
            seen["kept"] = forward(*args, **kwargs)
        return seen["kept"]

    return cached, seen


def unet_macs(pipe):
    inputs = (torch.ones(2, 4, LATENT, LATENT), torch.tensor(1), torch.ones(2, TOKENS, 32))
    return count_forward(pipe.unet, inputs)


def test_a_cache_of_the_whole_unet_by_a_patched_forward(load_tiny_pipeline):
    pipe = load_tiny_pipeline("unet")
    one = unet_macs(pipe).macs
    pipe.unet.forward, seen = every_second(pipe.unet.forward)
    profile = watched(pipe, (1, 3, SIDE, SIDE), **CALL)
    # Nothing of the user's is called again: neither by the count nor by a prediction beside it.
    assert (seen["calls"], seen["runs"]) == (TIMES, 3)
    unet = part(profile, "unet")
    assert (unet["calls"], unet["macs"]) == (TIMES, 3 * one)
    assert profile["prediction"]["enabled"] is False
    assert "forward of unet was replaced" in profile["prediction"]["reason"]
    unwatched = create_profiler().profile_pipeline(pipe, (1, 3, SIDE, SIDE), 4)
    assert (unwatched["enabled"], seen["calls"]) == (False, TIMES)
    assert "only known by watching" in unwatched["reason"]


@pytest.mark.slow
def test_a_skip_of_the_middle(load_tiny_pipeline):
    pipe = load_tiny_pipeline("unet")
    whole = unet_macs(pipe)
    (middle,) = (node for node in whole.by_module["children"] if node["name"] == "mid_block")
    pipe.unet.mid_block.forward, seen = every_second(pipe.unet.mid_block.forward)
    profile = watched(pipe, (1, 3, SIDE, SIDE), **CALL)
    assert seen["runs"] == 3
    assert middle["macs"] > 0
    assert part(profile, "unet")["macs"] == TIMES * whole.macs - 2 * middle["macs"]


@pytest.mark.slow
def test_a_cache_of_diffusers_own():
    from diffusers import FirstBlockCacheConfig

    plain = watched(tiny("FluxPipeline"))
    pipe = tiny("FluxPipeline")
    pipe.transformer.enable_cache(FirstBlockCacheConfig(threshold=1e9))
    cached = watched(pipe)
    # All steps but the first run the first block alone.
    assert part(cached, "transformer")["macs"] < part(plain, "transformer")["macs"]
    assert part(cached, "vae")["macs"] == part(plain, "vae")["macs"]
    assert "was replaced" in cached["prediction"]["reason"]


@pytest.mark.slow
def test_a_cache_that_leaves_blocks_out_by_their_magnitude():
    from diffusers import MagCacheConfig

    plain = watched(tiny("FluxPipeline"))
    pipe = tiny("FluxPipeline")
    pipe.transformer.enable_cache(
        MagCacheConfig(num_inference_steps=2, retention_ratio=0.0, threshold=10.0, mag_ratios=[1.0, 1.0])
    )
    assert part(watched(pipe), "transformer")["macs"] < part(plain, "transformer")["macs"]


@pytest.mark.slow
def test_lora(load_tiny_pipeline):
    peft = pytest.importorskip("peft")
    pipe = load_tiny_pipeline("unet")
    plain = watched(pipe, (1, 3, SIDE, SIDE), **CALL)
    pipe.unet.add_adapter(peft.LoraConfig(r=2, target_modules=["to_q"]))
    layers = [m for n, m in pipe.unet.named_modules() if n.endswith("to_q") and hasattr(m, "lora_A")]
    added = []
    for layer in layers:
        # Two thin layers for each: rows x 2 x (in + out).
        layer.register_forward_hook(
            lambda m, args, out: added.append(
                args[0].numel() // m.in_features * 2 * (m.in_features + m.out_features)
            )
        )
    profile = watched(pipe, (1, 3, SIDE, SIDE), **CALL)
    assert len(added) == TIMES * len(layers) > 0
    assert profile["total_macs"] - plain["total_macs"] == sum(added)


@pytest.mark.slow
def test_tiles(load_tiny_pipeline):
    pipe = load_tiny_pipeline("unet")
    plain = watched(pipe, (1, 3, 2 * SIDE, 2 * SIDE), **{**CALL, "height": 2 * SIDE, "width": 2 * SIDE})
    pipe.vae.enable_tiling()
    tiled = watched(pipe, (1, 3, 2 * SIDE, 2 * SIDE), **{**CALL, "height": 2 * SIDE, "width": 2 * SIDE})
    assert part(tiled, "vae")["calls"] > part(plain, "vae")["calls"] == 1
    assert part(tiled, "vae")["macs"] > part(plain, "vae")["macs"]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", ["model", "sequential", "group", "layerwise"])
def test_weights_that_come_and_go(load_tiny_pipeline, kind):
    """accelerate refuses to offload without an accelerator: its hooks are put on with the CPU in its place."""
    pipe = load_tiny_pipeline("unet")
    plain = watched(pipe, (1, 3, SIDE, SIDE), **CALL)
    _offload(pipe, kind)
    profile = watched(pipe, (1, 3, SIDE, SIDE), **CALL)
    assert profile["by_operator"] == plain["by_operator"]
    assert {p["name"]: p["macs"] for p in profile["components_measured"]} == {
        p["name"]: p["macs"] for p in plain["components_measured"]
    }
    assert "was replaced (offloading" in profile["prediction"]["reason"]


def _offload(pipe, kind):
    import accelerate

    cpu = torch.device("cpu")
    networks = [value for value in pipe.components.values() if isinstance(value, nn.Module)]
    if kind == "model":
        for network in networks:
            accelerate.cpu_offload_with_hook(network, execution_device=cpu)
    elif kind == "sequential":
        for network in networks:
            accelerate.cpu_offload(network, execution_device=cpu, offload_buffers=True)
    elif kind == "group":
        hooks = pytest.importorskip("diffusers.hooks", reason="of later releases of diffusers")
        hooks.apply_group_offloading(
            pipe.unet, onload_device=cpu, offload_device=cpu, offload_type="leaf_level"
        )
    else:
        if not hasattr(pipe.unet, "enable_layerwise_casting"):
            pytest.skip("of later releases of diffusers")
        pipe.unet.enable_layerwise_casting(storage_dtype=torch.float8_e4m3fn, compute_dtype=torch.float32)


def test_weights_of_torchao_in_int8(load_tiny_pipeline):
    quantization = pytest.importorskip("torchao.quantization")
    pipe = load_tiny_pipeline("unet")
    plain = watched(pipe, (1, 3, SIDE, SIDE), **CALL)
    quantization.quantize_(pipe.unet, quantization.Int8WeightOnlyConfig())
    profile = watched(pipe, (1, 3, SIDE, SIDE), **CALL)
    assert profile["total_macs"] == plain["total_macs"]


class Int8Linear(nn.Module):
    """A linear layer of 8-bit integers by the product that PyTorch has for them; rows are padded to what it takes."""

    def __init__(self, layer):
        super().__init__()
        self.scale = layer.weight.abs().max() / 127
        self.weight = nn.Parameter((layer.weight / self.scale).round().to(torch.int8), requires_grad=False)
        self.bias = layer.bias

    def forward(self, x):
        rows = x.reshape(-1, x.shape[-1])
        scale = rows.abs().max() / 127
        out = torch._int_mm((rows / scale).round().to(torch.int8), self.weight.t())
        out = (out * (scale * self.scale)).to(x.dtype).reshape(*x.shape[:-1], -1)
        return out if self.bias is None else out + self.bias


@pytest.mark.slow
def test_products_of_integers(load_tiny_pipeline):
    pipe = load_tiny_pipeline("unet")
    whole = unet_macs(pipe)
    for path, module in list(pipe.unet.named_modules()):
        if isinstance(module, nn.Linear) and path.endswith(("to_q", "to_k", "to_v")):
            parent, _, name = path.rpartition(".")
            setattr(pipe.unet.get_submodule(parent), name, Int8Linear(module))
    profiler = create_profiler()
    with profiler.watch(pipe), torch.no_grad():
        pipe(**CALL)
    profile = profiler.profile_pipeline(pipe, (1, 3, SIDE, SIDE), 4)
    assert profile["incomplete"] == {}
    assert part(profile, "unet")["macs"] == TIMES * whole.macs
    assert profile["by_operator"]["aten::_int_mm"] > 0

"""The fast network against the implementation it descends from, every way it can be computed."""

import copy
import pickle
import threading

import pytest
import torch
import torch.nn.functional as F
from spandrel.architectures.SwinIR.__arch.SwinIR import SwinIR as ReferenceSwinIR
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from swinmr_profiling.models.swin import windows
from swinmr_profiling.models.swin.attention import (
    ATTENTION_WAYS,
    FORCED_WAYS,
    attention_policy,
    pad_heads,
    padded_head_dim,
)
from swinmr_profiling.models.swin.swinir import SwinIR
from swinmr_profiling.profiler.counting import count_forward

# Head dims 10 and 15: neither is what a fused kernel of CUDA takes, so that "padded" pads.
OPTIONS = dict(
    img_size=32,
    in_chans=1,
    upscale=1,
    window_size=8,
    depths=[2, 3],
    embed_dim=30,
    num_heads=[3, 2],
    mlp_ratio=2,
    upsampler="",
    resi_connection="1conv",
    drop_path_rate=0.0,
)


pytestmark = pytest.mark.usefixtures("one_thread")
WAYS = ("auto", *FORCED_WAYS)
SHAPES = {"square": (1, 1, 32, 32), "3, non-square": (3, 1, 24, 40), "3, no multiple": (3, 1, 21, 35)}


def pair(seed=0, **options):
    """The reference and ours with the same weights, all of them moved away from their initial values."""
    torch.manual_seed(seed)
    options = {**OPTIONS, **options}
    reference, ours = ReferenceSwinIR(**options), SwinIR(**options)
    with torch.no_grad():
        for parameter in reference.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
    ours.load_state_dict(reference.state_dict())
    return reference, ours


def assert_gradients_equal(reference, ours, image, ours_called=None):
    for network, call in ((reference, reference), (ours, ours if ours_called is None else ours_called)):
        network.zero_grad()
        call(image).square().mean().backward()
    named = dict(ours.named_parameters())
    for key, parameter in reference.named_parameters():
        scale = parameter.grad.abs().max().clamp_min(1e-12)
        assert (named[key].grad - parameter.grad).abs().max() / scale < 1e-4, key


@pytest.mark.sampled(2)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("way", WAYS)
def test_every_way_equals_the_reference(way, shape):
    reference, ours = pair()
    ours.attention = way
    image = torch.rand(shape)
    with torch.no_grad():
        expected = reference.eval()(image)
        assert (ours.eval()(image) - expected).abs().max() < 1e-5
    with torch.inference_mode():
        assert (ours(image) - expected).abs().max() < 1e-5
    for checkpointing in ("none", "light", "full"):
        ours.gradient_checkpointing = checkpointing
        got = ours.train()(image)
        assert got.requires_grad
        assert (got - expected).abs().max() < 1e-5
        assert_gradients_equal(reference.train(), ours, image)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "options", [{"qkv_bias": False}, {"window_size": 7, "img_size": 28}, {"img_size": 8}]
)
def test_options_that_change_the_blocks(options):
    reference, ours = pair(**options)
    assert ours.attention_policy("cpu", trains=True) == "blocked"
    for way in WAYS:
        ours.attention = way
        assert_gradients_equal(reference, ours, torch.rand(2, 1, 28, 35))


def test_a_gradient_for_the_image():
    reference, ours = pair()
    images = [torch.rand(2, 1, 16, 24).requires_grad_() for _ in range(1)]
    images.append(images[0].detach().clone().requires_grad_())
    for network, image in zip((reference, ours), images, strict=True):
        network.requires_grad_(False)
        network(image).square().mean().backward()
    assert (images[0].grad - images[1].grad).abs().max() / images[0].grad.abs().max() < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("checkpointing", ["none", "light", "full"])
def test_compiled_without_graph_breaks(checkpointing):
    reference, ours = pair(depths=[2], num_heads=[3])
    ours.gradient_checkpointing = checkpointing
    windows._cache.clear()
    torch._dynamo.reset()
    compiled = torch.compile(ours, fullgraph=True, backend="aot_eager", dynamic=False)
    image = torch.rand(2, 1, 24, 40)
    assert_gradients_equal(reference, ours, image, compiled)
    with torch.no_grad():
        assert (compiled(image) - reference(image)).abs().max() < 1e-5


@pytest.mark.sampled(1)
@pytest.mark.parametrize("drop_path", [0.0, 0.3])
def test_two_training_steps_from_equal_seeds_lose_the_same(drop_path):
    reference, ours = pair(drop_path_rate=drop_path)
    image, target = torch.rand(4, 1, 32, 32), torch.rand(4, 1, 32, 32)
    losses = []
    for network in (reference, ours):
        network.train()
        optimizer = torch.optim.Adam(network.parameters(), lr=2e-4)
        torch.manual_seed(7)
        losses.append([])
        for _ in range(2):
            optimizer.zero_grad()
            loss = F.l1_loss(network(image), target)
            loss.backward()
            optimizer.step()
            losses[-1].append(loss.item())
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)
    assert losses[0][0] != losses[0][1]


@pytest.mark.parametrize(
    ("options", "macs"),
    [
        pytest.param({}, 799_872_122_880, marks=pytest.mark.slow),
        pytest.param({"embed_dim": 60}, 101_001_461_760, marks=pytest.mark.slow),
        ({"embed_dim": 60, "depths": [6] * 4, "num_heads": [6] * 4}, 68_065_689_600),
    ],
)
def test_no_product_is_added_or_goes_uncounted(options, macs):
    with torch.device("meta"):
        network = SwinIR(**options)
    image = torch.empty(1, 1, 256, 256, device="meta")
    for checkpointing in ("none", "light", "full"):
        network.gradient_checkpointing = checkpointing
        with FlopCounterMode(display=False) as counter:
            network(image)
        assert counter.get_total_flops() == 2 * macs
    report = count_forward(network, (image,))
    assert (report.macs, report.uncounted_operators) == (macs, {})


def test_the_way_taken_on_a_cpu_has_the_same_products():
    """Counted for real: the fused kernel's own formula, not the meta device's products."""
    from swinmr_profiling.profiler.counting.dispatch.engine import CountingMode
    from swinmr_profiling.profiler.counting.module_tree import ModuleTracker

    network = SwinIR(**OPTIONS).eval()
    image = torch.rand(1, 1, 32, 32)
    with torch.no_grad(), CountingMode(ModuleTracker(network)) as mode:
        network(image)
    assert sum(mode.tallies.by_kind.values()) == count_forward(network, (image,)).macs


def test_policy():
    assert attention_policy("cuda", trains=True) == "padded"
    assert attention_policy("cuda", trains=True, bias_alone=True) == "matmul"
    assert attention_policy("cpu", trains=False) == attention_policy("cpu", trains=True) == "blocked"
    assert attention_policy("cpu", trains=False, whole=False) == "fused"
    assert attention_policy("cpu", trains=True, whole=False) == "matmul"
    assert attention_policy("cpu", trains=True, traced=True) == "matmul"
    assert attention_policy("meta", trains=True) == attention_policy("mps", trains=False) == "matmul"
    network = SwinIR(**OPTIONS)
    assert network.attention_policy("cpu", trains=True) == "blocked"
    with torch.autocast("cpu", torch.bfloat16):
        assert network.attention_policy("cpu", trains=True) == "matmul"
        assert network.attention_policy("cpu", trains=False) == "blocked"
    assert SwinIR(**{**OPTIONS, "drop_rate": 0.1}).attention_policy("cpu", trains=True) == "matmul"
    assert SwinIR(**OPTIONS, attention="fused").attention_policy("cuda", trains=True) == "fused"
    with pytest.raises(ValueError, match="not 'blocked'"):
        SwinIR(**OPTIONS, attention="blocked")
    assert set(FORCED_WAYS) < set(ATTENTION_WAYS)


def test_padding_of_heads():
    assert [padded_head_dim(d, torch.float32) for d in (10, 30, 32)] == [12, 32, 32]
    assert [padded_head_dim(d, torch.bfloat16) for d in (10, 30, 32)] == [16, 32, 32]
    padded = pad_heads(torch.arange(1.0, 7.0), 3, 4, dim=0)
    assert padded.tolist() == [1, 2, 3, 0, 4, 5, 6, 0]
    assert pad_heads(torch.ones(5, 6), 3, 4, dim=1).shape == (5, 8)


def test_hooks_and_replaced_layers_are_called():
    reference, ours = pair()
    image = torch.rand(1, 1, 16, 16)
    block = ours.layers[0].residual_group.blocks[1]
    seen = []
    handle = block.attn.qkv.register_forward_hook(lambda module, args, out: seen.append(out.shape))
    with torch.no_grad():
        expected = reference(image)
        assert (ours(image) - expected).abs().max() < 1e-5
        assert seen == [(4, 64, 90)]
        handle.remove()

        class Doubled(nn.Linear):
            def forward(self, x):
                return 2 * super().forward(x)

        block.mlp.fc2.__class__ = Doubled
        for way in WAYS:
            ours.attention = way
            assert (ours(image) - expected).abs().max() > 1e-4


def test_a_hook_may_keep_what_a_block_returns():
    _, ours = pair()
    kept = []
    ours.layers[0].residual_group.blocks[0].register_forward_hook(
        lambda m, a, out: kept.append((out, out.clone()))
    )
    with torch.no_grad():
        ours.eval()(torch.rand(1, 1, 16, 16))
    assert torch.equal(*kept[0])


def test_dropout_drops():
    torch.manual_seed(0)
    for option in ("drop_rate", "attn_drop_rate"):
        network = SwinIR(**{**OPTIONS, option: 0.2})
        image = torch.rand(1, 1, 16, 16)
        assert not torch.equal(network(image), network(image))
        network.eval()
        with torch.no_grad():
            assert torch.equal(network(image), network(image))


def test_cache_is_shared_bounded_and_in_no_copy():
    network = SwinIR(**OPTIONS).eval()
    windows._cache.clear()
    with torch.inference_mode():
        for side in range(16, 16 + 8 * windows.CACHED_TENSORS // 3, 8):
            network(torch.rand(1, 1, side, 16))
    assert len(windows._cache) == windows.CACHED_TENSORS
    assert not any("index" in key or "mask" in key for key in network.state_dict())
    image = torch.rand(1, 1, 24, 40)
    with torch.no_grad():
        for copied in (copy.deepcopy(network), pickle.loads(pickle.dumps(network))):
            assert torch.equal(copied(image), network(image))


@pytest.mark.slow
def test_cache_keeps_nothing_fake_and_nothing_of_inference_mode():
    network = SwinIR(**OPTIONS)
    windows._cache.clear()
    with FakeTensorMode(allow_non_fake_inputs=True):
        network(torch.rand(1, 1, 16, 24)).mean().backward()
    assert not windows._cache
    with torch.inference_mode():
        network(torch.rand(1, 1, 16, 24))
    network.zero_grad()
    network(torch.rand(1, 1, 16, 24)).mean().backward()
    assert network.conv_first.weight.grad.abs().sum() > 0


def test_threads():
    network = SwinIR(**OPTIONS).eval()
    images = [torch.rand(1, 1, side, 16) for side in (16, 24, 32, 40)] * 2
    windows._cache.clear()
    results = [None] * len(images)

    def work(position):
        with torch.no_grad():
            results[position] = network(images[position])

    threads = [threading.Thread(target=work, args=(position,)) for position in range(len(images))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with torch.no_grad():
        for image, result in zip(images, results, strict=True):
            assert torch.equal(network(image), result)


def test_shifted_order_sorts_windows_by_class():
    """Each window's mask, made as SwinIR makes it from the rolled image, is that of its class."""
    geometry = windows.Geometry(2, 24, 32, 8, 4)
    rows = windows.image_rows(geometry, "shifted").view(-1, 64)
    y, x = rows // 32 % 24, rows % 32
    # In the rolled image the part wrapped round comes last.
    part = 3 * ((y - 4) % 24 >= 16).int() + 3 * ((y - 4) % 24 >= 20).int()
    part = part + ((x - 4) % 32 >= 24).int() + ((x - 4) % 32 >= 28).int()
    masks = torch.where(part[:, :, None] == part[:, None, :], 0.0, windows.MASKED_LOGIT)
    expected = windows.class_masks(8, 4).repeat_interleave(torch.tensor(geometry.class_sizes()), dim=0)
    assert geometry.class_sizes() == (12, 4, 6, 2)
    assert torch.equal(masks, expected)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("way", WAYS)
def test_half_precision_keeps_the_stream_in_fp32(half, way):
    reference, ours = pair()
    ours.attention = way
    image = torch.rand(1, 1, 16, 16)
    block = ours.layers[0].residual_group.blocks[0]
    with torch.no_grad():
        expected = reference(image)
        with torch.autocast("cpu", half):
            assert (ours(image).float() - expected).abs().max() < 0.05
        halved = copy.deepcopy(ours).to(half)
        assert (halved(image.to(half)).float() - expected).abs().max() < 0.05
    with torch.autocast("cpu", half):
        for checkpointing in ("none", "light", "full"):
            ours.gradient_checkpointing = checkpointing
            seen = []
            handle = block.register_forward_hook(lambda m, args, out, seen=seen: seen.append(out.dtype))
            loss = ours(image).float().square().mean()
            handle.remove()
            ours.zero_grad()
            loss.backward()
            assert seen == [torch.float32]
            assert all(parameter.grad.isfinite().all() for parameter in ours.parameters())


def test_fp16_does_not_overflow_at_the_published_depth():
    """A stream that has grown past 65504, as in deep trained networks, where the reference returns NaN."""
    reference, ours = pair(depths=[6] * 6, num_heads=[3] * 6)
    with torch.no_grad():
        for group in reference.layers:
            group.conv.weight.mul_(40)
    ours.load_state_dict(reference.state_dict())
    image = torch.rand(1, 1, 16, 16)
    with torch.no_grad():
        stream = []
        ours.norm.register_forward_hook(lambda module, args, out: stream.append(args[0].abs().max().item()))
        expected = ours.eval()(image)
        assert stream[0] > 65504
        with torch.autocast("cpu", torch.float16):
            got = ours(image)
            assert not reference.eval()(image).isfinite().all()
        assert got.isfinite().all()
        assert (got.float() - expected).abs().max() < 0.05 * expected.abs().max()
        assert copy.deepcopy(ours).half()(image.half()).isfinite().all()

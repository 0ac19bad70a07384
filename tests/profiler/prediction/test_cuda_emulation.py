"""The meta device standing for CUDA: dtypes by the documented autocast lists, kernels by the documented rules."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from swinmr_profiling.models.swin.attention import attention_policy
from swinmr_profiling.profiler.prediction.cuda.cuda_emulation import attention_kernel, cuda_on_meta


def meta(*shape, dtype=torch.float32, **options):
    return torch.empty(*shape, dtype=dtype, device="meta", **options)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_takes_the_dtypes_that_pytorch_documents_for_cuda(dtype):
    # https://docs.pytorch.org/docs/stable/amp.html, "CUDA Ops that can autocast to ..."
    x = meta(4, 8, 16, 16)
    with cuda_on_meta(), torch.autocast("cuda", dtype):
        low = F.conv2d(x, meta(8, 8, 3, 3), padding=1)
        assert low.dtype == dtype
        assert (meta(4, 4) @ meta(4, 4)).dtype == dtype
        assert F.linear(meta(4, 4), meta(4, 4)).dtype == dtype
        assert F.layer_norm(low, low.shape[-1:]).dtype == torch.float32
        assert F.softmax(low, -1).dtype == torch.float32
        assert low.sum().dtype == torch.float32
        assert (low**2).dtype == torch.float32
        assert F.mse_loss(low, low).dtype == torch.float32
        assert F.gelu(low).dtype == dtype  # in no list: as it comes
        assert torch.addcmul(x, low, low).dtype == torch.float32  # the widest of its arguments
        with torch.autocast("cuda", enabled=False):
            assert F.conv2d(x, meta(8, 8, 3, 3)).dtype == torch.float32


def test_nothing_is_cast_without_autocast_nor_afterwards():
    with cuda_on_meta():
        assert F.linear(meta(4, 4), meta(4, 4)).dtype == torch.float32
    assert F.linear(meta(4, 4), meta(4, 4)).dtype == torch.float32
    assert not torch.is_autocast_enabled("xpu")
    assert attention_policy("meta", trains=True) == "matmul"


def test_weights_are_cast_once_per_context_and_activations_every_time():
    weight = nn.Parameter(meta(4, 4))
    casts = []
    with cuda_on_meta():

        class Counts(torch.utils._python_dispatch.TorchDispatchMode):
            def __torch_dispatch__(self, function, types, args=(), kwargs=None):
                if function is torch.ops.aten._to_copy.default:
                    casts.append(tuple(args[0].shape))
                return function(*args, **(kwargs or {}))

        with Counts():
            with torch.autocast("cuda", torch.bfloat16):
                x = meta(3, 4)
                F.linear(x, weight)
                F.linear(x, weight)
            with torch.autocast("cuda", torch.bfloat16):
                F.linear(x, weight)
    # First context: x, weight, x; second: x and, the cache being gone, the weight.
    assert sorted(casts) == [(3, 4), (3, 4), (3, 4), (4, 4), (4, 4)]


def test_gradients_arrive_in_the_dtype_of_the_parameters():
    layer = nn.Linear(4, 4, device="meta")
    with cuda_on_meta():
        with torch.autocast("cuda", torch.bfloat16):
            loss = layer(meta(3, 4)).float().sum()
        loss.backward()
    assert layer.weight.grad.dtype == torch.float32


@pytest.mark.parametrize(
    ("dtype", "head_dim", "masked", "kernel"),
    [
        # Flash: half precision, no mask (sdp_utils.cpp). Efficient: rows of 16 bytes: 4 floats or 8 halves.
        (torch.bfloat16, 64, False, "flash"),
        (torch.bfloat16, 64, True, "efficient"),
        (torch.bfloat16, 60, True, "math"),
        (torch.float32, 64, False, "efficient"),
        (torch.float32, 32, True, "efficient"),
        (torch.float32, 30, True, "math"),
        (torch.float64, 64, False, "math"),
    ],
)
def test_attention_takes_the_kernel_that_cuda_takes(dtype, head_dim, masked, kernel):
    query = meta(2, 3, 16, head_dim, dtype=dtype)
    assert attention_kernel(query, query, query, meta(16, 16, dtype=dtype) if masked else None) == kernel


def test_scaled_dot_product_attention_is_the_fused_operator_with_its_gradient():
    query = meta(2, 3, 16, 32, requires_grad=True)
    with cuda_on_meta():
        out = F.scaled_dot_product_attention(query, query, query)
        with torch.autocast("cuda", torch.bfloat16):
            half = F.scaled_dot_product_attention(query, query, query)
        with torch.no_grad():
            assert F.scaled_dot_product_attention(query, query, query).shape == query.shape
        out.sum().backward()
    assert "Efficient" in type(out.grad_fn).__name__
    assert "Flash" in type(half.grad_fn).__name__
    assert half.dtype == torch.bfloat16
    assert query.grad.shape == query.shape


def test_dropout_keeps_a_mask_of_one_byte_per_number():
    saved = []
    with (
        cuda_on_meta(),
        torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t),
    ):
        F.dropout(meta(3, 5, requires_grad=True), 0.5)
        F.dropout(meta(3, 5, requires_grad=True), 0.5, training=False)
    assert [(tuple(t.shape), t.dtype) for t in saved] == [((3, 5), torch.bool)]


def test_optimizers_and_the_averaged_model_take_their_foreach_forms():
    layer = nn.Linear(4, 4, device="meta")
    layer(meta(2, 4)).sum().backward()
    names = []

    class Names(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            names.append(function._schema.name)
            return function(*args, **(kwargs or {}))

    with cuda_on_meta(), Names():
        torch.optim.AdamW(layer.parameters()).step()
        nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
    assert "aten::_foreach_addcdiv_" in names or "aten::_foreach_addcdiv_.ScalarList" in names
    assert any(name.startswith("aten::_foreach_norm") for name in names)


def test_the_networks_decide_as_on_cuda():
    with cuda_on_meta():
        assert attention_policy("meta", trains=True) == "padded"
        assert attention_policy("cpu", trains=True) == "blocked"


def test_checkpointed_layers_are_recomputed_under_the_same_autocast():
    layer, dtypes = nn.Linear(4, 4, device="meta"), []

    def run(x):
        hidden = layer(x)
        dtypes.append(hidden.dtype)
        return layer(hidden)  # the recomputation ends here, where its last saved tensor is made

    with cuda_on_meta():
        with torch.autocast("cuda", torch.bfloat16):
            out = torch.utils.checkpoint.checkpoint(run, meta(2, 4, requires_grad=True), use_reentrant=False)
        out.float().sum().backward()
    assert dtypes == [torch.bfloat16, torch.bfloat16]


def test_kernels_that_are_switched_off_are_not_taken():
    half = [meta(1, 2, 8, 64, dtype=torch.float16) for _ in range(3)]
    full = [meta(1, 2, 8, 64) for _ in range(3)]
    assert attention_kernel(*half, None) == "flash"
    for backend, kernel in ((SDPBackend.EFFICIENT_ATTENTION, "efficient"), (SDPBackend.MATH, "math")):
        with sdpa_kernel(backend):
            assert attention_kernel(*half, None) == kernel
    # Flash takes no fp32: CUDA refuses, too.
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION), pytest.raises(RuntimeError, match="No available kernel"):
        attention_kernel(*full, None)


def test_the_autocast_of_an_inputs_device_is_that_of_cuda():
    """Networks ask for that of `x.device.type`; without a GPU it names no device that has autocast."""
    x = meta(4, 4)
    with cuda_on_meta(), torch.autocast("cuda", torch.bfloat16):
        assert torch.is_autocast_enabled(x.device.type)
        assert torch.get_autocast_dtype(x.device.type) == torch.bfloat16
        with torch.autocast(device_type=x.device.type, enabled=False):
            assert not torch.is_autocast_enabled("cuda")
            assert F.linear(x, meta(4, 4)).dtype == torch.float32
        assert F.linear(x, meta(4, 4)).dtype == torch.bfloat16
    with cuda_on_meta(), torch.autocast(x.device.type, dtype=torch.float16):
        assert F.linear(x, meta(4, 4)).dtype == torch.float16
    with pytest.raises(RuntimeError):
        torch.autocast("meta")


def test_a_network_that_asks_whether_it_is_on_cuda_goes_that_way():
    x = meta(4, 4)
    with cuda_on_meta():
        assert x.is_cuda
        assert nn.Parameter(x).is_cuda
        assert not torch.empty(1).is_cuda  # what stays on the host does
    assert not x.is_cuda
    assert "is_cuda" not in vars(torch.Tensor)

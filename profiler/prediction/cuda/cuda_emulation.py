"""Makes tensors without data behave as CUDA's would: the same operators, the same precisions, the same results kept.

Autocast, attention, dropout and the optimizers' foreach forms decide by device; for the meta device each would take
another way, and another amount of memory. Everything here is process-wide while it lasts, so that it belongs into
a process of its own.
"""

# The operators of torch.ops.aten have no types; each returns what its schema says.
# mypy: no-warn-return-any

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch._C import DispatchKey, DispatchKeySet
from torch.utils._pytree import tree_leaves, tree_map

from swinmr_profiling.models.stand_in import autocast_on_meta, meta_stands_for
from swinmr_profiling.profiler.prediction.cuda.autocast_lists import (
    FP32,
    FP32_RESULT,
    LOWER_PRECISION,
    PROMOTE,
)

# Flash attention's largest head dim (torch's sdp_utils.cpp, sm80 and newer), and its rows' granularity.
FLASH_MAX_HEAD_DIM = 256
FLASH_HEAD_DIM_MULTIPLE = 8
# The memory-efficient kernel reads rows of 16 bytes, and masks whose rows are a multiple of 16 numbers.
EFFICIENT_ROW_BYTES = 16
EFFICIENT_MASK_MULTIPLE = 16

_AUTOCAST = DispatchKeySet(DispatchKey.AutocastCUDA)
# Operators that CUDA computes otherwise with and without autocast are answered at a key that is always on: that of
# a device which is not there, whose autocast changes nothing else because no tensor is on it.
_ALWAYS_DEVICE, _ALWAYS_NAME = "xpu", "AutocastXPU"
aten = torch.ops.aten


class AutocastCache:
    """Casts of the weights, kept until the outermost autocast context ends, as torch keeps them."""

    def __init__(self) -> None:
        self._casts: dict[int, tuple[Tensor, Tensor]] = {}

    def cast(self, value: Any, dtype: torch.dtype) -> Any:
        """The tensor in dtype where autocast would cast it, else the value as it is."""
        if not isinstance(value, Tensor) or value.device.type != "meta" or not value.is_floating_point():
            return value
        if value.dtype == dtype or value.dtype == torch.float64:
            return value
        kept = (
            dtype == torch.get_autocast_dtype("cuda")
            and value.dtype == torch.float32
            and value.requires_grad
            and value.is_leaf
            and not value._is_view()
            and torch.is_autocast_cache_enabled()
        )
        if not kept:
            return value.to(dtype)
        if id(value) not in self._casts:
            # The original is held so that its identity is not given to another tensor.
            self._casts[id(value)] = (value, value.to(dtype))
        return self._casts[id(value)][1]

    def clear(self) -> None:
        self._casts.clear()


def _casting(
    cache: AutocastCache, dtype_of: Callable[[Any], torch.dtype], operator: torch._ops.OpOverload
) -> Callable[..., Any]:
    """A kernel that casts every tensor argument to `dtype_of(arguments)` and calls the operator without autocast."""

    def kernel(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(_AUTOCAST):
            dtype = dtype_of((args, kwargs))
            args, kwargs = tree_map(lambda value: cache.cast(value, dtype), (args, kwargs))
            return operator(*args, **kwargs)

    return kernel


def _widest(arguments: Any) -> torch.dtype:
    is_wide = (isinstance(leaf, Tensor) and leaf.dtype == torch.float32 for leaf in tree_leaves(arguments))
    return torch.float32 if any(is_wide) else torch.get_autocast_dtype("cuda")


def _fp32_result(operator: torch._ops.OpOverload) -> Callable[..., Any]:
    place = [argument.name for argument in operator._schema.arguments].index("dtype")

    def kernel(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(_AUTOCAST):
            given = args[place] if len(args) > place else kwargs.get("dtype")
            if given is None and args[0].is_floating_point() and args[0].dtype != torch.float64:
                args, kwargs = args[:place], {**kwargs, "dtype": torch.float32}
            return operator(*args, **kwargs)

    return kernel


def attention_kernel(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> str:
    """The kernel that scaled_dot_product_attention takes on CUDA (sm80 and newer): "flash", "efficient" or "math".

    torch's sdp_utils.cpp: flash takes half precision without a mask; the memory-efficient kernel takes a mask, and
    head dims that fill rows of 16 bytes. cuDNN's kernel, which some versions prefer on Hopper, keeps what flash does.
    Kernels that torch.nn.attention.sdpa_kernel or torch.backends.cuda switch off are left out.
    Raises RuntimeError where none is left, as CUDA does.
    """
    possible = _possible_kernels(query, key, value, mask)
    allowed = [kernel for kernel in possible if _ENABLED[kernel]()]
    if not allowed:
        asked = " or ".join(name for name, enabled in _ENABLED.items() if enabled()) or "no"
        masked = "" if mask is None else " with a mask"
        raise RuntimeError(
            f"No available kernel: {asked} attention alone is allowed (system.attention), and on CUDA it does not take "
            f"{query.dtype} of shape {tuple(query.shape)}{masked}: {', '.join(possible)} would"
        )
    return allowed[0]


def _possible_kernels(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> list[str]:
    """What can compute it, the preferred one first."""
    if query.dim() != 4 or query.dtype == torch.float64:
        return ["math"]
    head_dims = {query.shape[-1], key.shape[-1], value.shape[-1]}
    half = query.dtype in (torch.float16, torch.bfloat16)
    rows_fit = all(dim * query.element_size() % EFFICIENT_ROW_BYTES == 0 for dim in head_dims)
    takes = {
        "flash": half and mask is None and len(head_dims) == 1 and max(head_dims) <= FLASH_MAX_HEAD_DIM,
        "efficient": rows_fit and query.shape[-1] == key.shape[-1],
        "math": True,
    }
    return [kernel for kernel, does in takes.items() if does]


_ENABLED: dict[str, Callable[[], bool]] = {
    "flash": torch.backends.cuda.flash_sdp_enabled,
    "efficient": torch.backends.cuda.mem_efficient_sdp_enabled,
    "math": torch.backends.cuda.math_sdp_enabled,
}


def _padded_mask(mask: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """The mask as torch hands it to the memory-efficient kernel: aligned rows, expanded to all heads."""
    last = mask.shape[-1]
    if mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill_(~mask, float("-inf"))
    if last % EFFICIENT_MASK_MULTIPLE:
        mask = torch.nn.functional.pad(mask, (0, -last % EFFICIENT_MASK_MULTIPLE))[..., :last]
    return mask.expand(query.shape[0], query.shape[1], query.shape[2], key.shape[2])


def _attention_with_autocast(
    cache: AutocastCache,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **options: Any,
) -> Tensor:
    """The casts live until the result is there, as those of CUDA's autocast do."""
    if torch.is_autocast_enabled("cuda"):
        dtype = torch.get_autocast_dtype("cuda")
        query, key, value, attn_mask = (cache.cast(x, dtype) for x in (query, key, value, attn_mask))
    return _attention(query, key, value, attn_mask, dropout_p, is_causal, **options)


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """scaled_dot_product_attention on CUDA, for tensors without data."""
    kernel = "math" if enable_gqa else attention_kernel(query, key, value, attn_mask)
    if kernel == "flash":
        width = query.shape[-1]
        scale = width**-0.5 if scale is None else scale
        extra = -width % FLASH_HEAD_DIM_MULTIPLE
        if extra:
            query, key, value = (torch.nn.functional.pad(x, (0, extra)) for x in (query, key, value))
        out = aten._scaled_dot_product_flash_attention(
            query, key, value, dropout_p, is_causal, False, scale=scale
        )[0]
        return out[..., :width] if extra else out
    if kernel == "efficient":
        if attn_mask is not None:
            attn_mask = _padded_mask(attn_mask, query, key)
        wants_gradient = torch.is_grad_enabled() and any(
            x is not None and x.requires_grad for x in (query, key, value, attn_mask)
        )
        return aten._scaled_dot_product_efficient_attention(
            query, key, value, attn_mask, wants_gradient, dropout_p, is_causal, scale=scale
        )[0]
    # enable_gqa stays a keyword that older versions know, too.
    return aten._scaled_dot_product_attention_math(
        query, key, value, attn_mask, dropout_p, is_causal, None, scale=scale, enable_gqa=enable_gqa
    )[0]


def _dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """Dropout on CUDA keeps a mask of one byte per number."""
    if train and 0 < p < 1 and input.numel():
        return aten.native_dropout(input, p, train)[0]
    if train and p == 1:
        return input * torch.zeros((), dtype=input.dtype, device=input.device)
    return input


def _softmax(operator: Any, input: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    """softmax and log_softmax on CUDA read fp16 and write fp32 in one kernel, without a copy in between (SoftMax.cpp).

    operator: `aten._softmax` or `aten._log_softmax`. bf16 is converted first.
    """
    narrow = input.is_floating_point() and input.dtype != torch.float64
    if dtype is None and narrow and torch.is_autocast_enabled("cuda"):
        dtype = torch.float32
    if input.dtype == torch.float16 and dtype == torch.float32:
        return operator(input, dim, True)
    return operator(input if dtype is None else input.to(dtype), dim, False)


def _group_norm(
    cache: AutocastCache,
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-05,
    cudnn_enabled: bool = True,
) -> Tensor:
    """group_norm on CUDA takes the plain layout alone: channels-last input is copied, and the result is plain."""
    if torch.is_autocast_enabled("cuda"):
        input, weight, bias = (cache.cast(x, torch.float32) for x in (input, weight, bias))
    batch, channels = input.shape[:2]
    inner = input.shape[2:].numel()
    input = input.contiguous()
    return aten.native_group_norm(input, weight, bias, batch, channels, inner, num_groups, eps)[0]


@contextmanager
def cuda_on_meta() -> Iterator[None]:
    """While it lasts, the meta device stands for CUDA; `torch.autocast("cuda", ...)` works on it.

    Everything that decides by device: autocast's lists and its cache of weights, attention's kernels, dropout,
    the optimizers' foreach forms, gradient clipping, the averaged model, torch's own checkpoint function.
    """
    cache = AutocastCache()
    library = torch.library.Library("aten", "IMPL")
    of_autocast = (
        (LOWER_PRECISION, partial(_casting, cache, lambda arguments: torch.get_autocast_dtype("cuda"))),
        (FP32, partial(_casting, cache, lambda arguments: torch.float32)),
        (FP32_RESULT, _fp32_result),
        (PROMOTE, partial(_casting, cache, _widest)),
    )
    always: dict[str, Callable[..., Any]] = {
        "scaled_dot_product_attention": partial(_attention_with_autocast, cache),
        "dropout": _dropout,
        "softmax.int": partial(_softmax, aten._softmax),
        "log_softmax.int": partial(_softmax, aten._log_softmax),
        "group_norm": partial(_group_norm, cache),
    }
    with ExitStack() as stack:
        stack.callback(library._destroy)
        for names, kernel_of in of_autocast:
            for name in names:
                packet, _, overload = name.partition(".")
                operator = getattr(getattr(aten, packet, None), overload or "default", None)
                if operator is not None:
                    _register(library, name, kernel_of(operator), "AutocastCUDA")
        for name, kernel in always.items():
            _register(library, name, kernel, _ALWAYS_NAME)
        for context in (
            *_patches(cache),
            meta_stands_for("cuda"),
            autocast_on_meta("cuda"),
            # A meta tensor does not carry these keys by itself. The first is excluded again while autocast is off.
            *map(torch._C._IncludeDispatchKeyGuard, (DispatchKey.AutocastCUDA, DispatchKey.AutocastXPU)),
        ):
            stack.enter_context(context)
        stack.callback(torch.set_autocast_enabled, _ALWAYS_DEVICE, False)
        torch.set_autocast_enabled(_ALWAYS_DEVICE, True)
        yield


def _is_cuda(tensor: torch.Tensor) -> bool:
    """`Tensor.is_cuda` as a network sees it, which may choose its way by it; what PyTorch asks is patched below."""
    found: bool = torch._C.TensorBase.is_cuda.__get__(tensor)  # type: ignore[attr-defined]
    asks_torch = sys._getframe(1).f_globals.get("__name__", "").partition(".")[0] == "torch"
    return found or (tensor.device.type == "meta" and not asks_torch)


def _register(library: torch.library.Library, name: str, kernel: Callable[..., Any], key: str) -> None:
    with warnings.catch_warnings():
        # PyTorch before 2.11 warns of it all the same.
        warnings.filterwarnings("ignore", message=r"(?s).*Overriding a previously registered kernel")
        library.impl(name, kernel, key, allow_override=True)


def _patches(cache: AutocastCache) -> list[Any]:
    from torch.optim import optimizer, swa_utils
    from torch.utils import _foreach_utils, checkpoint

    devices = [*_foreach_utils._get_foreach_kernels_supported_devices(), "meta"]
    clear = torch.clear_autocast_cache

    def clear_both() -> None:
        cache.clear()
        clear()

    patches = [
        mock.patch.object(module, "_get_foreach_kernels_supported_devices", return_value=devices)
        for module in (_foreach_utils, optimizer, swa_utils)
        if hasattr(module, "_get_foreach_kernels_supported_devices")
    ]
    infer = checkpoint._infer_device_type

    def infer_device_type(*args: Any) -> str:
        found: str = infer(*args)  # type: ignore[no-untyped-call]
        return "cuda" if found == "meta" else found

    return [
        *patches,
        mock.patch.object(torch, "clear_autocast_cache", clear_both),
        mock.patch.object(torch.Tensor, "is_cuda", property(_is_cuda)),
        mock.patch.object(checkpoint, "_infer_device_type", infer_device_type),
        # autocast("cuda") switches itself off where there is no GPU.
        mock.patch.object(torch.cuda.amp.common, "amp_definitely_not_available", return_value=False),
        mock.patch.object(torch.cuda, "is_bf16_supported", return_value=True),
    ]

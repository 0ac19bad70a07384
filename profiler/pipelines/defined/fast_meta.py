"""Calls on meta tensors that do not go torch's way: attention as a fused kernel runs it, sums without detours."""

from __future__ import annotations

import torch
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
ELEMENTWISE = frozenset({aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor})


class FusedAttention(TorchFunctionMode):
    """Sends `scaled_dot_product_attention` to one fused operator.

    On meta torch takes attention apart into two products with all scores between them: at 1024 px 4 GiB a layer,
    which no GPU kernel allocates. The fused operator has the same multiply-adds and makes only its result. What no
    fused kernel takes (values of another width, fewer than four dimensions) stays as it is.
    """

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function is F.scaled_dot_product_attention:
            query, key, value = (args + tuple(kwargs[n] for n in ("query", "key", "value") if n in kwargs))[
                :3
            ]
            if query.is_meta and query.dim() == 4 and query.shape[-1] == value.shape[-1] and key.dim() == 4:
                with torch._C.DisableTorchFunction():
                    return torch.ops.aten._scaled_dot_product_flash_attention(query, key, value)[0]
        return function(*args, **kwargs)


class FastElementwise(TorchDispatchMode):
    """Answers elementwise operators of two contiguous meta tensors of one dtype by an empty tensor.

    That is what they return: the broadcast shape, contiguous, the same dtype. Everything else runs as it is. torch's
    own Python references would take most of the time of a count.
    """

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function in ELEMENTWISE and len(args) == 2 and _is_plain(args[0]):
            first, second = args
            if _is_plain(second) and second.dtype == first.dtype:
                return first.new_empty(torch.broadcast_shapes(first.shape, second.shape))
            if isinstance(second, (int, float)) and not isinstance(second, bool):
                return first.new_empty(first.shape)
        return function(*args, **(kwargs or {}))


def _is_plain(tensor: object) -> bool:
    return (
        isinstance(tensor, torch.Tensor)
        and tensor.is_meta
        and tensor.dim() > 0
        and tensor.is_floating_point()
        and tensor.is_contiguous()
    )

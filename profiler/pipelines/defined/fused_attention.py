"""Attention on meta tensors as a fused kernel runs it: without the matrix of scores in memory."""

from __future__ import annotations

import torch
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode


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

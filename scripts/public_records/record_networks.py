"""Networks of the public records, built by name from packages, with random weights.

A network is the record's only when it has as many parameters: some have changed since, and some are in no package.
Restoration networks are spandrel's classes with the sizes of traiNNer-redux (the-database, Apache 2.0).
"""

from __future__ import annotations

import importlib
from typing import Any

from torch import nn


class NotBuildableError(LookupError):
    """No package makes this network, or what it makes has another number of parameters."""


def _swin(width: int, depth: int, heads: int, *, window: int = 8, **more: Any) -> dict[str, Any]:
    return {
        "embed_dim": width, "depths": [6] * depth, "num_heads": [heads] * depth, "window_size": window,
        "mlp_ratio": 2.0, **more,
    }  # fmt: skip


def _grl(width: int, upsampler: str, **more: Any) -> dict[str, Any]:
    heads = {"num_heads_window": [2] * 4, "num_heads_stripe": [2] * 4}
    return {
        "embed_dim": width, "upsampler": upsampler, "depths": [4] * 4, **heads, "window_size": 32,
        "stripe_size": [64, 64], "stripe_shift": True, "mlp_ratio": 2.0, "anchor_window_down_factor": 4, **more,
    }  # fmt: skip


GRL_B = {
    "depths": [4, 4, 8, 8, 8, 4, 4], "num_heads_window": [3] * 7, "num_heads_stripe": [3] * 7, "local_connection": True,
}  # fmt: skip
HAT_S: dict[str, Any] = {"compress_ratio": 24, "squeeze_factor": 24}
SHUFFLE: dict[str, Any] = {"upsampler": "pixelshuffle"}
DIRECT: dict[str, Any] = {"upsampler": "pixelshuffledirect"}
NEAREST: dict[str, Any] = {"upsampler": "nearest+conv"}
DAT = {"split_size": [8, 32], "depth": [6] * 6, "num_heads": [6] * 6}
RGT = {"split_size": [8, 32], "mlp_ratio": 2.0}
SPAN = {"num_in_ch": 3, "num_out_ch": 3, "norm": False}
PLKSR_TINY = {"n_blocks": 12, "kernel_size": 13, "use_ea": False}
# Name of the record: class of spandrel, name of its argument for the scale, its other arguments.
RESTORATION: dict[str, tuple[str, str, dict[str, Any]]] = {
    "atd": ("ATD.ATD", "upscale", {
        "img_size": 96, "embed_dim": 210, "depths": [6] * 6, "num_heads": [6] * 6, "window_size": 16,
        "num_tokens": 128, "reducted_dim": 20, **SHUFFLE,
    }),
    "atd_light": ("ATD.ATD", "upscale", {
        "embed_dim": 48, "window_size": 16, "category_size": 128, "reducted_dim": 8, "convffn_kernel_size": 7,
        "mlp_ratio": 1, **DIRECT,
    }),
    "compact": ("Compact.Compact", "upscale", {}),
    "ultracompact": ("Compact.Compact", "upscale", {"num_conv": 8}),
    "superultracompact": ("Compact.Compact", "upscale", {"num_conv": 8, "num_feat": 24}),
    "craft": ("CRAFT.CRAFT", "upscale", {}),
    "dat": ("DAT.DAT", "upscale", DAT),
    "dat_s": ("DAT.DAT", "upscale", {**DAT, "split_size": [8, 16], "expansion_factor": 2}),
    "dat_2": ("DAT.DAT", "upscale", {**DAT, "expansion_factor": 2}),
    "dat_light": ("DAT.DAT", "upscale", {
        **DAT, "depth": [18], "embed_dim": 60, "num_heads": [6], "expansion_factor": 2, "resi_connection": "3conv",
    }),
    "dctlsa": ("DCTLSA.DCTLSA", "upscale", {}),
    "ditn_real": ("DITN.DITN", "upscale", {}),
    "drct": ("DRCT.DRCT", "upscale", SHUFFLE),
    "drct_l": ("DRCT.DRCT", "upscale", {**SHUFFLE, "depths": [6] * 12, "num_heads": [6] * 12}),
    "drct_xl": ("DRCT.DRCT", "upscale", {**SHUFFLE, "depths": [6] * 14, "num_heads": [6] * 14}),
    "esrgan": ("ESRGAN.ESRGAN", "scale", {}),
    "esrgan_lite": ("ESRGAN.ESRGAN", "scale", {"num_blocks": 12, "num_filters": 32}),
    "grl_b": ("GRL.GRL", "upscale", {**_grl(180, "pixelshuffle"), **GRL_B}),
    "grl_s": ("GRL.GRL", "upscale", _grl(128, "pixelshuffle")),
    "grl_t": ("GRL.GRL", "upscale", _grl(64, "pixelshuffledirect")),
    "hat_l": ("HAT.HAT", "upscale", _swin(180, 12, 6, window=16)),
    "hat_m": ("HAT.HAT", "upscale", _swin(180, 6, 6, window=16)),
    "hat_s": ("HAT.HAT", "upscale", _swin(144, 6, 6, window=16, **HAT_S)),
    "moesr2": ("MoESR.MoESR", "scale", {"expansion_factor": 8 / 3}),
    "mosr": ("MoSR.MoSR", "upscale", {}),
    "mosr_t": ("MoSR.MoSR", "upscale", {"n_block": 5, "dim": 48}),
    "omnisr": ("OmniSR.OmniSR", "up_scale", {"res_num": 5}),
    "plksr": ("PLKSR.PLKSR", "upscaling_factor", {"ccm_type": "DCCM"}),
    "plksr_tiny": ("PLKSR.PLKSR", "upscaling_factor", {"ccm_type": "DCCM", **PLKSR_TINY}),
    "rcan": ("RCAN.RCAN", "scale", {}),
    "realplksr": ("PLKSR.RealPLKSR", "upscaling_factor", {}),
    "realplksr_tiny": ("PLKSR.RealPLKSR", "upscaling_factor", {**PLKSR_TINY, "layer_norm": True}),
    "realplksr_large": ("PLKSR.RealPLKSR", "upscaling_factor", {"dim": 96, "layer_norm": True}),
    "rgt": ("RGT.RGT", "upscale", {**RGT, "depth": [6] * 8, "num_heads": [6] * 8}),
    "rgt_s": ("RGT.RGT", "upscale", {**RGT, "depth": [6] * 6, "num_heads": [6] * 6}),
    "safmn": ("SAFMN.SAFMN", "upscaling_factor", {"dim": 36}),
    "safmn_l": ("SAFMN.SAFMN", "upscaling_factor", {"dim": 128, "n_blocks": 16}),
    "seemore_t": ("SeemoRe.SeemoRe", "scale", {"num_experts": 3, "embedding_dim": 36, "lr_space": "exp"}),
    "span": ("SPAN.SPAN", "upscale", {**SPAN, "feature_channels": 52}),
    "span_s": ("SPAN.SPAN", "upscale", {**SPAN, "feature_channels": 48}),
    "swin2sr_l": ("Swin2SR.Swin2SR", "upscale", _swin(240, 9, 8, resi_connection="3conv", **NEAREST)),
    "swin2sr_m": ("Swin2SR.Swin2SR", "upscale", _swin(180, 6, 6, **SHUFFLE)),
    "swin2sr_s": ("Swin2SR.Swin2SR", "upscale", _swin(60, 4, 6, **DIRECT)),
    "swinir_l": ("SwinIR.SwinIR", "upscale", _swin(240, 9, 8, resi_connection="3conv", **NEAREST)),
    "swinir_m": ("SwinIR.SwinIR", "upscale", _swin(180, 6, 6, img_size=48, **SHUFFLE)),
    "swinir_s": ("SwinIR.SwinIR", "upscale", _swin(60, 4, 6, **DIRECT)),
}  # fmt: skip
# ESRGAN reads small scales from an image whose pixels were moved into channels.
UNSHUFFLED = {
    1: {"in_nc": 48, "shuffle_factor": 4, "scale": 4},
    2: {"in_nc": 12, "shuffle_factor": 2, "scale": 4},
}


def restoration_network(name: str, variant: str, scale: int, parameters: int) -> nn.Module:
    """The network of a row of the restoration table, on the CPU. Raises NotBuildableError."""
    arguments: dict[str, Any] = {}
    if name == "realcugan":
        target = f"RealCUGAN.UpCunet{scale}x"
    elif name not in RESTORATION:
        raise NotBuildableError("in no package")
    else:
        target, scale_argument, own = RESTORATION[name]
        arguments = {**own, scale_argument: scale, **_variant(name, variant, scale)}
    folder, class_name = target.split(".")
    try:
        network = getattr(importlib.import_module(f"spandrel.architectures.{folder}"), class_name)(
            **arguments
        )
    except Exception as error:  # whatever a constructor raises for a scale that it does not know
        raise NotBuildableError(f"{target}: {type(error).__name__}: {error}") from error
    found = sum(p.numel() for p in network.parameters() if p.requires_grad)
    if found != parameters:
        raise NotBuildableError(f"{target} has {found:,} parameters, the record's network {parameters:,}")
    return network


def _variant(name: str, variant: str, scale: int) -> dict[str, Any]:
    words = variant.split()
    if name.startswith("esrgan"):
        return {} if "use_pixel_unshuffle=False" in words else UNSHUFFLED.get(scale, {})
    if name == "realplksr":
        return {"dysample": "dysample" in words, "layer_norm": "layer_norm=True" in words}
    return {}


def timm_network(name: str, millions: float) -> nn.Module:
    """The network of a row of timm's tables; without data where its constructor allows it. Raises NotBuildableError."""
    import timm
    import torch

    if not timm.is_model(name):
        raise NotBuildableError(f"timm {timm.__version__} has no network of this name")
    try:
        with torch.device("meta"):
            network = timm.create_model(name)
    except Exception:  # constructors that read values
        try:
            network = timm.create_model(name)
        except Exception as error:
            raise NotBuildableError(f"timm: {type(error).__name__}: {error}") from error
    found = sum(p.numel() for p in network.parameters()) / 1e6
    if round(found, 2) != millions:
        raise NotBuildableError(f"{found:.2f} million parameters, the record's network {millions:.2f}")
    return network

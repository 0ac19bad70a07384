"""Networks that nobody here wrote, from timm, torchvision, transformers and diffusers: for benchmark_agreement.py.

Sizes are each class's own; of repeated blocks the first two stand for all where a class can be told how many, and text
is short. Built under ``torch.device("meta")``, so that neither memory nor initialisation costs anything.
"""

import inspect
import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import nn

Call = tuple[tuple, dict[str, Any]]
# build() -> the network, and calls to try in this order: which inputs a class wants, it does not say.
Build = Callable[[], tuple[nn.Module, list[Call]]]
Network = tuple[str, Build]

TOKENS = 32


def _timm(rng: random.Random) -> Iterator[Network]:
    import timm

    names = timm.list_models()
    rng.shuffle(names)

    def build(name: str) -> tuple[nn.Module, list[Call]]:
        module = timm.create_model(name)
        size = timm.data.resolve_model_data_config(module)["input_size"]
        return module, [((torch.empty(1, *size),), {})]

    return ((f"timm {name}", partial(build, name)) for name in names)


def _torchvision(rng: random.Random) -> Iterator[Network]:
    from torchvision import models

    sizes = {
        models: (3, 224, 224),
        models.segmentation: (3, 224, 224),
        models.video: (3, 16, 112, 112),
        models.optical_flow: (3, 128, 128),
    }
    found = [(name, size) for place, size in sizes.items() for name in models.list_models(module=place)]
    rng.shuffle(found)

    def build(name: str, size: tuple[int, ...]) -> tuple[nn.Module, list[Call]]:
        options = (
            {"weights_backbone": None} if "segmentation" in models.get_model_builder(name).__module__ else {}
        )
        image = torch.empty(1, *(3, 299, 299) if name == "inception_v3" else size)
        images = (image, image) if name.startswith("raft") else (image,)
        return models.get_model(name, weights=None, **options), [(images, {})]

    return ((f"torchvision {name}", partial(build, name, size)) for name, size in found)


def _transformers(rng: random.Random) -> Iterator[Network]:
    import transformers
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    kinds = sorted(MODEL_MAPPING_NAMES)
    rng.shuffle(kinds)

    def build(kind: str) -> tuple[nn.Module, list[Call]]:
        try:
            config = transformers.AutoConfig.for_model(kind, num_hidden_layers=2)
            module = transformers.AutoModel.from_config(config)
        except Exception:
            # Where the number of layers is another key's, or must fit another's.
            config = transformers.AutoConfig.for_model(kind)
            module = transformers.AutoModel.from_config(config)
        return module, list(_calls_of(module, config))

    return ((f"transformers {kind}", partial(build, kind)) for kind in kinds)


def _calls_of(module: nn.Module, config: Any) -> Iterator[Call]:
    """Text, images, sound and pairs of them, as far as the forward has names for them."""
    known = inspect.signature(module.forward).parameters
    text = torch.zeros(1, TOKENS, dtype=torch.int64)
    given: dict[str, Any] = {}
    seen = getattr(config, "vision_config", config)
    side = getattr(seen, "image_size", None) or 224
    side = side if isinstance(side, int) else side[0] if isinstance(side, (list, tuple)) else 224
    image = torch.empty(1, getattr(seen, "num_channels", None) or 3, side, side)
    bands = getattr(config, "num_mel_bins", None) or getattr(config, "feature_size", None) or 80
    for name, value in (
        ("input_ids", text),
        ("pixel_values", image),
        ("pixel_values_videos", torch.empty(1, getattr(config, "num_frames", 8), *image.shape[1:])),
        ("input_values", torch.empty(1, 16_000)),
        ("input_features", torch.empty(1, bands, 2 * getattr(config, "max_source_positions", 500))),
    ):
        if name in known:
            given[name] = value
    after = {"decoder_input_ids": text} if "decoder_input_ids" in known else {}
    main: Any = module.main_input_name
    for name in (main, *given):
        if name in given:
            yield (), {name: given[name], **after}
            yield (), {name: given[name]}
    if "pixel_values" in given:
        clip = torch.empty(1, getattr(config, "num_frames", None) or 8, *image.shape[1:])
        yield (), {"pixel_values": clip}
        yield (), {"input_ids": text, "pixel_values": image}
        yield (), {"input_ids": text, "pixel_values": image, "attention_mask": torch.ones_like(text)}
    if "inputs_embeds" in known and hasattr(config, "hidden_size"):
        yield (), {"inputs_embeds": torch.empty(1, TOKENS, config.hidden_size)}


def _diffusers(rng: random.Random) -> Iterator[Network]:
    import diffusers

    latent, step = torch.empty(1, 4, 32, 32), torch.zeros(1, dtype=torch.int64)
    picture = torch.empty(1, 3, 64, 64)

    def text(width: int, tokens: int = 77) -> torch.Tensor:
        return torch.empty(1, tokens, width)

    class_label = torch.zeros(1, dtype=torch.int64)
    flux = {"num_layers": 1, "num_single_layers": 2}
    no_micro = {"resolution": None, "aspect_ratio": None}
    calls: dict[str, tuple[dict, tuple, dict]] = {
        "UNet1DModel": (
            {"sample_size": 1024, "extra_in_channels": 16},
            (torch.empty(1, 2, 1024), step),
            {},
        ),
        "UNet2DModel": ({"sample_size": 32}, (torch.empty(1, 3, 32, 32), step), {}),
        "UNet2DConditionModel": ({"sample_size": 32}, (latent, step, text(1280)), {}),
        "UNet3DConditionModel": ({"sample_size": 32}, (torch.empty(1, 4, 4, 32, 32), step, text(1024)), {}),
        "UNetMotionModel": ({}, (torch.empty(1, 4, 4, 32, 32), step, text(1280)), {}),
        "UNetSpatioTemporalConditionModel": (
            {},
            (torch.empty(1, 2, 8, 32, 32), step, text(1024, 1), torch.zeros(1, 3)),
            {},
        ),
        "Kandinsky3UNet": ({}, (latent, step, text(4096), torch.ones(1, 77)), {}),
        "ControlNetModel": ({}, (latent, step, text(1280), torch.empty(1, 3, 256, 256)), {}),
        "UVit2DModel": (
            {"num_hidden_layers": 2},
            (torch.zeros(1, 16, 16, dtype=torch.int64), text(768), torch.empty(1, 768), torch.zeros(1, 5)),
            {},
        ),
        "AutoencoderKL": ({}, (picture,), {}),
        "AutoencoderTiny": ({}, (picture,), {}),
        "AutoencoderDC": ({}, (picture,), {}),
        "AsymmetricAutoencoderKL": ({}, (picture,), {}),
        "AutoencoderKLTemporalDecoder": ({}, (picture,), {"num_frames": 1}),
        "AutoencoderKLCogVideoX": ({}, (torch.empty(1, 3, 1, 64, 64),), {}),
        "AutoencoderOobleck": ({}, (torch.empty(1, 2, 8192),), {}),
        "VQModel": ({}, (torch.empty(1, 3, 32, 32),), {}),
        "DiTTransformer2DModel": (
            {"num_layers": 4},
            (latent,),
            {"timestep": step, "class_labels": class_label},
        ),
        "PixArtTransformer2DModel": (
            {"num_layers": 2, "sample_size": 32, "caption_channels": 4096},
            (latent, text(4096), step, no_micro),
            {},
        ),
        "SD3Transformer2DModel": (
            {"num_layers": 2, "sample_size": 32},
            (torch.empty(1, 16, 32, 32), text(4096), torch.empty(1, 2048), step),
            {},
        ),
        "FluxTransformer2DModel": (
            flux,
            (torch.empty(1, 64, 64), text(4096), torch.empty(1, 768), step),
            {
                "img_ids": torch.zeros(64, 3),
                "txt_ids": torch.zeros(77, 3),
                "guidance": None,
            },
        ),
        "AuraFlowTransformer2DModel": (
            {"num_mmdit_layers": 1, "num_single_dit_layers": 2},
            (latent, text(2048), step),
            {},
        ),
        "SanaTransformer2DModel": ({"num_layers": 2}, (torch.empty(1, 32, 32, 32), text(2304), step), {}),
        "CogVideoXTransformer3DModel": (
            {"num_layers": 2},
            (torch.empty(1, 4, 16, 60, 90), text(4096, 226), step),
            {},
        ),
        "LTXVideoTransformer3DModel": (
            {"num_layers": 2},
            (torch.empty(1, 4 * 8 * 8, 128), text(4096), step, torch.ones(1, 77)),
            {"num_frames": 4, "height": 8, "width": 8},
        ),
        "WanTransformer3DModel": (
            {"num_layers": 2},
            (torch.empty(1, 16, 4, 16, 16), step, text(4096)),
            {},
        ),
        "MochiTransformer3DModel": (
            {"num_layers": 2},
            (torch.empty(1, 12, 2, 16, 16), text(4096), step, torch.ones(1, 77)),
            {},
        ),
        "LatteTransformer3DModel": (
            {"num_layers": 2, "sample_size": 32, "in_channels": 4, "patch_size": 2, "caption_channels": 4096},
            (torch.empty(1, 4, 4, 32, 32), step, text(4096)),
            {},
        ),
        "TransformerTemporalModel": (
            {"in_channels": 320, "norm_num_groups": 32},
            (torch.empty(4, 320, 8, 8),),
            {"num_frames": 4},
        ),
        "StableAudioDiTModel": (
            {"num_layers": 2},
            (torch.empty(1, 64, 64), step, text(768), torch.empty(1, 1, 1536)),
            {},
        ),
        "PriorTransformer": (
            {"num_layers": 4},
            (torch.empty(1, 768), step, torch.empty(1, 768)),
            {"encoder_hidden_states": text(768)},
        ),
    }
    names = sorted(calls)
    rng.shuffle(names)

    def build(name: str) -> tuple[nn.Module, list[Call]]:
        config, args, kwargs = calls[name]
        return getattr(diffusers, name)(**config), [(args, kwargs)]

    return ((f"diffusers {name}", partial(build, name)) for name in names)


SOURCES = (_timm, _transformers, _torchvision, _transformers, _timm, _diffusers, _transformers)


def networks(seed: int) -> Iterator[Network]:
    """Drawn from the packages in turn, until all are asked."""
    rng = random.Random(seed)
    drawn = {source: source(rng) for source in dict.fromkeys(SOURCES)}
    while drawn:
        for source in SOURCES:
            if source in drawn:
                one = next(drawn[source], None)
                if one is None:
                    del drawn[source]
                else:
                    yield one

"""Configs drawn from the documented values, those that are accepted built and run on tensors without data.

    PYTHONPATH=src:. python -m tests.properties.built_configs --count 1000 --seed 1

An accepted config is a network, or ModelError in one line: never a traceback. Sizes are capped, so that a network
takes a fraction of a second.
"""

from __future__ import annotations

import argparse
import random
import sys
import traceback
from collections import Counter
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

import torch

from swinmr_profiling.configs import ConfigError, ExperimentConfig, config_from_dict
from swinmr_profiling.configs.sections.model import MODEL_SECTIONS
from swinmr_profiling.models.errors import ModelError
from swinmr_profiling.models.registry import build_model

SIZES = [1, 2, 3, 4, 6, 7, 8, 12, 16, 24, 32, 48, 64]
SIDES = [1, 7, 8, 16, 24, 32, 33, 48, 64, [16, 32], [32, 8], [17, 64]]
FLOATS = [0.0, 0.1, 0.5, 1.0, 2.0, 2.7, 4.0]
# Networks of timm, one of each family that reads its sizes in another way.
TIMM = [
    *(
        "resnet10t",
        "mobilenetv3_small_050",
        "convnext_atto",
        "efficientnet_b0",
        "test_vit",
        "test_efficientnet",
    ),
    *("vit_tiny_patch16_224", "swin_tiny_patch4_window7_224", "mixer_s32_224", "regnetx_002", "levit_128s"),
]
DIFFUSERS: list[dict[str, Any]] = [
    {
        "class": "UNet2DModel",
        "config": {
            "block_out_channels": [32, 64],
            "layers_per_block": 1,
            "norm_num_groups": 8,
            "sample_size": 32,
        }
        | {
            "down_block_types": ["DownBlock2D", "AttnDownBlock2D"],
            "up_block_types": ["AttnUpBlock2D", "UpBlock2D"],
        },
    },
    {"class": "AutoencoderKL", "config": {"block_out_channels": [32], "sample_size": 32, "in_channels": 3}},
    {
        "class": "UNet2DConditionModel",
        "config": {
            "block_out_channels": [32],
            "down_block_types": ["CrossAttnDownBlock2D"],
            "layers_per_block": 1,
        }
        | {"up_block_types": ["CrossAttnUpBlock2D"], "cross_attention_dim": 8, "sample_size": 16},
        "inputs": {"encoder_hidden_states": [7, 8]},
    },
]


def accepted_configs(seed: int) -> Iterator[tuple[dict[str, Any], ExperimentConfig]]:
    """Endless: raw sections and the config that they are accepted as."""
    rng = random.Random(seed)
    while True:
        raw = {"model": _model(rng), "data": _data(rng)}
        if rng.random() < 0.4:
            raw["training"] = {"gradient_checkpointing": rng.choice(["none", "light", "full"])}
        try:
            yield raw, config_from_dict(raw)
        except ConfigError:
            continue


def _model(rng: random.Random) -> dict[str, Any]:
    net_type = rng.choice(["swinir", "swinir", "unet_denoiser", "dit_denoiser", "timm", "diffusers"])
    if net_type == "timm":
        kwargs: dict[str, Any] = rng.choice(
            [{}, {}, {"drop_rate": 0.1}, {"no_such_argument": 1}, {"depth": "x"}]
        )
        sizes = {"img_size": rng.choice([None, 32, 64, 224]), "in_chans": rng.choice([1, 3, 4])}
        return {"net_type": "timm", "name": rng.choice(TIMM), "kwargs": kwargs, **sizes}
    if net_type == "diffusers":
        model = {"net_type": "diffusers", **rng.choice(DIFFUSERS)}
        if rng.random() < 0.5:
            key = rng.choice(["sample_size", "in_channels", "norm_num_groups", "act_fn"])
            model["config"] = {**model["config"], key: rng.choice([3, 8, 16, "x"])}
        return model
    # Mostly values that go together, as people write them; each may still be any of its own.
    model = {"net_type": net_type}
    if net_type == "swinir":
        groups, heads = rng.randint(1, 3), rng.choice([1, 2, 3, 4])
        model |= {"depths": [rng.randint(1, 3) for _ in range(groups)], "num_heads": [heads] * groups}
        model |= {"embed_dim": heads * rng.choice([2, 4, 8]), "window_size": rng.choice([2, 4, 7, 8])}
    elif net_type == "unet_denoiser":
        groups = rng.choice([1, 2, 4, 8])
        model |= {"num_groups": groups, "base_channels": groups * rng.choice([1, 2, 4])}
        model |= {
            "channel_multipliers": rng.choice([[1], [1, 2], [1, 2, 2]]),
            "head_channels": rng.choice([1, 2, 4]),
        }
    else:
        heads = rng.choice([1, 2, 3, 4])
        model |= {
            "num_heads": heads,
            "embed_dim": heads * 4 * rng.choice([1, 2, 4]),
            "depth": rng.randint(1, 3),
        }
    model["img_size"] = rng.choice(SIDES)
    for name, field in MODEL_SECTIONS[net_type].model_fields.items():
        if (
            name not in ("net_type", "img_size", "depths", "depth", "channel_multipliers")
            and rng.random() < 0.25
        ):
            value = _value(field.annotation, rng)
            if value is not None:
                model[name] = value
    return model


def _data(rng: random.Random) -> dict[str, Any]:
    if rng.random() < 0.5:
        return {"use_patches": False}
    return {"patch_size": rng.choice([8, 16, 32, [8, 16], 7])}


def _value(annotation: Any, rng: random.Random) -> Any:
    """Any documented value of a field, its size capped; None for one that is not drawn."""
    kinds = [kind for kind in (annotation, *get_args(annotation)) if kind is not type(None)]
    for kind in kinds:
        if get_origin(kind) is Literal:
            return rng.choice(get_args(kind))
        if get_origin(kind) is list:
            return [rng.choice(SIZES[:6]) for _ in range(rng.randint(1, 3))]
        if kind is bool:
            return rng.random() < 0.5
        if kind is int:
            return rng.choice(SIZES)
        if kind is float:
            return rng.choice(FLOATS)
        if get_args(kind) and kind is not annotation:
            return _value(kind, rng)
    return None


def build_and_run(config: ExperimentConfig) -> str:
    """ "ran", or "refused" by ModelError. Whatever else is raised is a fault."""
    try:
        with torch.device("meta"):
            built = build_model(config)
    except ModelError as error:
        if "\n" in str(error):
            raise AssertionError("more than one line") from error
        return "refused"
    module = built.module.to("meta").eval()
    for which in ("inference", "training"):
        with torch.no_grad():
            module(*built.example_inputs(1, "meta", which=which))
    return "ran"


def main() -> int:
    """Prints every fault and the counts; 0 where there was no fault."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parsed = parser.parse_args()
    counts: Counter[tuple[str, str]] = Counter()
    for (raw, config), _ in zip(accepted_configs(parsed.seed), range(parsed.count), strict=False):
        try:
            ended = build_and_run(config)
        except Exception:
            ended = "failed"
            print(raw)
            traceback.print_exc(limit=-3, file=sys.stdout)
        counts[config.model.net_type, ended] += 1
    for (net_type, ended), number in sorted(counts.items()):
        print(f"{net_type:<16}{ended:<10}{number:>6}")
    print(f"{sum(counts.values())} accepted configs")
    return int(any(ended == "failed" for _, ended in counts))


if __name__ == "__main__":
    sys.exit(main())

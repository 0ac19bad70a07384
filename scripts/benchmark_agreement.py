"""Networks of timm, torchvision, transformers and diffusers: our count against PyTorch's FlopCounterMode.

    python scripts/benchmark_agreement.py                    # 200 networks
    python scripts/benchmark_agreement.py --networks 8 --seed 3

Both count the same forward on tensors without data. Where they differ, the operators that make the difference are
named, and their differences add up to it to the unit. Exit status 1 if a difference is made by an operator that is not
known to be missing from FlopCounterMode, or if an operator of ours is listed as uncounted.
"""

import argparse
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import swinmr_profiling.command  # noqa: F401 - takes this folder off sys.path
from swinmr_profiling.configs.writing.standard_streams import replace_unknown_characters
from swinmr_profiling.profiler.counting import count_forward

# Products that FlopCounterMode has no formula for, each with a case of its own in counter_cases.py.
MISSING_THERE = frozenset(
    [
        "aten::mv",
        "aten::addmv",
        "aten::dot",
        "aten::vdot",
        "aten::baddbmm",
        "aten::addbmm",
        "aten::_trilinear",
        "aten::affine_grid_generator",
        "aten::_cdist_forward",
        "aten::_euclidean_dist",
        "torchvision::deform_conv2d",
    ]
)

Network = tuple[str, Callable[[], tuple[nn.Module, tuple, dict]]]


def _timm(rng: random.Random) -> Iterator[Network]:
    import timm

    names = timm.list_models()
    rng.shuffle(names)

    def build(name: str) -> tuple[nn.Module, tuple, dict]:
        module = timm.create_model(name)
        size = timm.data.resolve_model_data_config(module)["input_size"]
        return module, (torch.empty(1, *size),), {}

    return ((f"timm {name}", lambda name=name: build(name)) for name in names)


def _torchvision(rng: random.Random) -> Iterator[Network]:
    from torchvision import models

    sizes = {
        models: (3, 224, 224),
        models.segmentation: (3, 224, 224),
        models.video: (3, 16, 112, 112),
    }
    found = [(name, size) for place, size in sizes.items() for name in models.list_models(module=place)]
    rng.shuffle(found)

    def build(name: str, size: tuple[int, ...]) -> tuple[nn.Module, tuple, dict]:
        options = (
            {"weights_backbone": None} if "segmentation" in models.get_model_builder(name).__module__ else {}
        )
        size = (3, 299, 299) if name == "inception_v3" else size
        return models.get_model(name, weights=None, **options), (torch.empty(1, *size),), {}

    return ((f"torchvision {name}", lambda name=name, size=size: build(name, size)) for name, size in found)


def _transformers(rng: random.Random) -> Iterator[Network]:
    import transformers
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    kinds = sorted(MODEL_MAPPING_NAMES)
    rng.shuffle(kinds)

    def build(kind: str) -> tuple[nn.Module, tuple, dict]:
        config = transformers.AutoConfig.for_model(kind)
        module = transformers.AutoModel.from_config(config)
        if module.main_input_name == "input_ids":
            return module, (), {"input_ids": torch.zeros(1, 32, dtype=torch.int64)}
        if module.main_input_name == "pixel_values":
            side = getattr(config, "image_size", 224)
            side = side if isinstance(side, int) else side[0]
            return (
                module,
                (),
                {"pixel_values": torch.empty(1, getattr(config, "num_channels", 3), side, side)},
            )
        raise ValueError(f"main input {module.main_input_name}")

    return ((f"transformers {kind}", lambda kind=kind: build(kind)) for kind in kinds)


def _diffusers(rng: random.Random) -> Iterator[Network]:
    import diffusers

    image, step = torch.empty(1, 4, 32, 32), torch.zeros(1, dtype=torch.int64)
    text = torch.empty(1, 77, 1280)
    calls: dict[str, tuple[dict, tuple, dict]] = {
        "UNet2DModel": ({"sample_size": 32}, (torch.empty(1, 3, 32, 32), step), {}),
        "UNet2DConditionModel": ({"sample_size": 32}, (image, step, text), {}),
        "UNet3DConditionModel": (
            {"sample_size": 32},
            (torch.empty(1, 4, 4, 32, 32), step, torch.empty(1, 77, 1024)),
            {},
        ),
        "AutoencoderKL": ({}, (torch.empty(1, 3, 64, 64),), {}),
        "AutoencoderTiny": ({}, (torch.empty(1, 3, 64, 64),), {}),
        "VQModel": ({}, (torch.empty(1, 3, 32, 32),), {}),
        "DiTTransformer2DModel": (
            {"num_layers": 4},
            (image,),
            {"timestep": step, "class_labels": torch.zeros(1, dtype=torch.int64)},
        ),
        "PriorTransformer": (
            {"num_layers": 4},
            (torch.empty(1, 768), step, torch.empty(1, 768)),
            {"encoder_hidden_states": torch.empty(1, 77, 768)},
        ),
    }
    names = sorted(calls)
    rng.shuffle(names)

    def build(name: str) -> tuple[nn.Module, tuple, dict]:
        config, args, kwargs = calls[name]
        return getattr(diffusers, name)(**config), args, kwargs

    return ((f"diffusers {name}", lambda name=name: build(name)) for name in names)


SOURCES = (_timm, _torchvision, _timm, _transformers, _timm, _torchvision, _diffusers)


def networks(seed: int) -> Iterator[Network]:
    """Endlessly drawn from the packages in turn, until all are asked."""
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


def by_operator_of_flop_counter(module: nn.Module, args: tuple, kwargs: dict) -> dict[str, int]:
    """MACs by operator as FlopCounterMode has them."""
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        module(*args, **kwargs)
    counts = counter.get_flop_counts().get("Global", {})
    return {str(operator).replace(".", "::", 1): flops // 2 for operator, flops in counts.items()}


def compare(name: str, build: Callable[[], tuple[nn.Module, tuple, dict]]) -> bool | None:
    """Prints one line. Whether they agree but for what is known to be missing; None where it does not run on meta."""
    try:
        with torch.device("meta"):
            module, args, kwargs = build()
        module.eval()
        args = tuple(x.to("meta") for x in args)
        kwargs = {key: x.to("meta") for key, x in kwargs.items()}
        theirs = by_operator_of_flop_counter(module, args, kwargs)
    except Exception:
        # A network that reads values, wants other inputs, or takes what is not installed: not what is compared here.
        return None
    report = count_forward(module, args, kwargs)
    gaps = {
        operator: difference
        for operator in report.by_operator.keys() | theirs.keys()
        if (difference := report.by_operator.get(operator, 0) - theirs.get(operator, 0))
    }
    total = report.macs - sum(theirs.values())
    known = all(operator in MISSING_THERE and operator not in theirs for operator in gaps)
    good = known and sum(gaps.values()) == total and not report.uncounted_operators
    why = ", ".join(f"{operator} {difference:+,}" for operator, difference in sorted(gaps.items())) or "equal"
    listed = f"; uncounted {dict(report.uncounted_operators)}" if report.uncounted_operators else ""
    print(f"{'' if good else 'DIFFERS '}{name}: {report.macs:,}, {why}{listed}", flush=True)
    return good


def main() -> int:
    replace_unknown_characters()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--networks", type=int, default=200, metavar="N", help="how many to compare (default 200)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the order they are drawn in")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    compared = left_out = bad = 0
    for name, build in networks(arguments.seed):
        if compared >= arguments.networks:
            break
        result = compare(name, build)
        if result is None:
            left_out += 1
            continue
        compared += 1
        bad += not result
    print(
        f"{compared} networks, {bad} with a difference that is not explained; {left_out} do not run without data"
    )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

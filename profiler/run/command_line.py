"""The options of `profile_model.py`: parsed, checked, and turned into what the run takes."""

from __future__ import annotations

import argparse
import dataclasses
import re
from collections.abc import Sequence

from swinmr_profiling.configs import ConfigError, LoadedConfig, config_from_dict
from swinmr_profiling.configs.schema import SystemSection
from swinmr_profiling.profiler.isolation.measuring_session import MeasureOptions
from swinmr_profiling.profiler.measure.latency import DEFAULT_RUNS, DEFAULT_TIME_BUDGET_S, DEFAULT_WARMUP_RUNS
from swinmr_profiling.profiler.options.budget_options import add_budget_options, memory_size
from swinmr_profiling.profiler.options.option_types import (
    OneLineParser,
    at_least,
    device,
    non_negative_int,
    positive_int,
    positive_seconds,
)
from swinmr_profiling.profiler.record.batch_limits import MAX_BATCH_SIZE, MIN_TRAINING_STEPS
from swinmr_profiling.profiler.record.blocks.figures import Precision
from swinmr_profiling.profiler.run.context import Card, RunOptions, TrainingOptions
from swinmr_profiling.profiler.run.network_options import add_network_options, source_conflict
from swinmr_profiling.profiler.run.report_options import add_report_options, conflict
from swinmr_profiling.profiler.run.sweep import DEFAULT_BATCH_SIZES

DEFAULT_OUTPUT = "results/profile_results.json"
MAX_IMAGE_SIDE = 65536
# system.mixed_precision; true means bf16 where supported, and where it is not the run says so.
PRECISION_OF_CONFIG: dict[bool | str, Precision] = {
    False: "fp32",
    True: "bf16",
    "bf16": "bf16",
    "fp16": "fp16",
    "pure_bf16": "pure_bf16",
}
# What `--list-models` lists.
LISTS = ["types", "spandrel", "restoration"]
MODELS = {
    "swinir": "SwinIR and SwinMR (Liang et al. 2021, Huang et al. 2022); alias swinmr",
    "unet_denoiser": "diffusion U-Net of DDPM and ADM (Ho et al. 2020, Dhariwal and Nichol 2021)",
    "dit_denoiser": "diffusion transformer with adaLN-zero (Peebles and Xie 2023)",
    "diffusers": "any model class of the diffusers package by name and config, with random weights",
    "restoration": "EDSR, BasicVSR and others that option files name (--list-models restoration)",
    "spandrel": "restoration networks by checkpoint, or by name with random weights (--list-models spandrel)",
    "transformers": "any model class of the transformers package, with random weights",
    "timm": "any network of the timm package by name, with random weights",
    "custom": "your own torch.nn.Module class, imported with --trust-config",
}


def batch_sizes(text: str) -> list[int]:
    """ "1,4,8" -> [1, 4, 8]. Raises ArgumentTypeError for anything but distinct positive integers."""
    sizes = []
    for part in text.split(","):
        if not re.fullmatch(r"\s*[+-]?\d+\s*", part):
            shown = repr(part.strip()) if part.strip() else "an empty entry"
            raise argparse.ArgumentTypeError(f"{shown} in {text!r}: give whole numbers such as 1,4,8")
        size = int(part)
        if not 1 <= size <= MAX_BATCH_SIZE:
            raise argparse.ArgumentTypeError(f"{size} in {text!r}: a batch is 1 to {MAX_BATCH_SIZE}")
        if size in sizes:
            raise argparse.ArgumentTypeError(f"{size} is twice in {text!r}")
        sizes.append(size)
    return sizes


def image_size(text: str) -> list[int]:
    """ "256" or "256x320" (height x width) -> [height, width] in pixels."""
    match = re.fullmatch(r"(\d{1,6})(?:x(\d{1,6}))?", text)
    sides = [int(side) for side in match.groups() if side] if match else []
    if not sides or not all(1 <= side <= MAX_IMAGE_SIDE for side in sides):
        raise argparse.ArgumentTypeError(f"{text!r}: give pixels, such as 256 or 256x320 (height x width)")
    return sides * 2 if len(sides) == 1 else sides


def training_steps(text: str) -> int:
    """A number of optimizer steps that shows the memory of training: at least 3."""
    return at_least(text, MIN_TRAINING_STEPS)


class ProfileArguments(argparse.Namespace):
    """The parsed options."""

    def cards(self) -> tuple[Card, ...]:
        """The GPUs that were named."""
        by_name = (Card(gpu.name, gpu.total_bytes, gpu.compute_capability) for gpu in self.gpu)
        return (*by_name, *(Card(f"{text} GPU", size) for text, size in self.gpu_memory))

    def run_options(self, system: SystemSection, command_line: Sequence[str]) -> RunOptions:
        """What the run takes: the command's options, and the config's `system` section where one is not given."""
        measure = MeasureOptions(
            device=self.device,
            precision=self.precision or PRECISION_OF_CONFIG[system.mixed_precision],
            channels_last=self.channels_last or system.channels_last,
            compile=self.compile or system.compile,
            num_runs=self.num_runs,
            warmup=self.warmup,
            time_budget_s=self.time_budget,
            timeout_s=self.timeout,
            seed=system.seed if self.seed is None else self.seed,
            threads=system.threads if self.threads is None else self.threads,
            trust_config=self.trust_config,
        )
        return RunOptions(
            measure,
            batch_sizes=self.batch_sizes,
            cross_check=self.cross_check,
            flops_counter=self.flops_counter,
            depth=self.depth,
            by_module=self.by_module,
            strict_flops=self.strict_flops,
            resume=self.resume,
            with_lpips=self.with_lpips,
            training=TrainingOptions(
                enabled=not self.no_training,
                predict_only=self.predict_only,
                cards=self.cards(),
                levers=bool(self.predict_only or self.gpu or self.gpu_memory),
                headroom=self.headroom,
                reserved_bytes=self.reserved or 0,
                target_batch=self.target_batch,
                devices=self.devices,
                measure=True if self.measure_training else None,
                steps=self.training_steps,
                cache=not self.no_cache,
            ),
            command_line=tuple(command_line),
        )


def parse_profile_arguments(arguments: Sequence[str]) -> ProfileArguments:
    """Parses the command line; ends the process with status 2 and one line when it is wrong."""
    parser = OneLineParser(
        prog="profile_model.py",
        description="Profile the network of a JSON config: parameters, MACs, latency and memory by batch size.",
    )
    add = parser.add_argument
    add("--config", metavar="FILE", help="the config (configs/README.md describes every key)")
    add_network_options(add)
    add("--batch-sizes", type=batch_sizes, metavar="N,N,...", help=(
        f"sizes to measure (default {','.join(map(str, DEFAULT_BATCH_SIZES))}; on a CPU, where none are named, "
        "without those that would take the sweep past two minutes)"
    ))  # fmt: skip
    add(
        "--device",
        type=device,
        default="auto",
        help="auto (default), cpu, cuda, cuda:1; auto alone falls back",
    )
    add("--precision", choices=["fp32", "bf16", "fp16"], help=(
        "fp32, or autocast to bf16 or fp16 (default: the config's system.mixed_precision)"
    ))  # fmt: skip
    add(
        "--image-size",
        type=image_size,
        metavar="N|HxW",
        help="pixels, in place of the config's model.img_size",
    )
    add("--num-runs", type=positive_int, metavar="N", help=(
        f"timed runs of every size (default: {DEFAULT_RUNS}, and more until the median is sure, within the budget)"
    ))  # fmt: skip
    add("--warmup", type=non_negative_int, metavar="N", help=(
        f"warm-up runs of every size (default: {DEFAULT_WARMUP_RUNS}, within a fifth of the budget)"
    ))  # fmt: skip
    add("--time-budget", type=positive_seconds, default=DEFAULT_TIME_BUDGET_S, metavar="S", help=(
        f"seconds for each batch size where --num-runs is not given (default {DEFAULT_TIME_BUDGET_S:g})"
    ))  # fmt: skip
    add("--timeout", type=positive_seconds, metavar="S", help=(
        "seconds after which a size is given up as hung (default: ten times what is expected, 30 minutes at least)"
    ))  # fmt: skip
    add("--cross-check", choices=["off", "small", "full"], default="small", help=(
        "ask fvcore and thop too: at a small input (default), at the full one (minutes and GBs), or not at all"
    ))  # fmt: skip
    add(
        "--flops-counter",
        choices=["fvcore", "thop"],
        help="also show this counter's own full-size figure, to quote",
    )
    add("--strict-flops", action="store_true", help="exit 5 if an operator has no formula")
    add("--depth", type=non_negative_int, default=0, metavar="N", help="print the module tree, N levels deep")
    add("--by-module", action="store_true", help=(
        "measure latency and memory of each module too, by hooks in runs of their own; --depth says how deep to print"
    ))  # fmt: skip
    add("--channels-last", action="store_true", help="channels-last memory format")
    add("--compile", action="store_true", help="torch.compile the network before it is timed")
    add(
        "--seed",
        type=non_negative_int,
        metavar="N",
        help="seed of the random weights (default: the config's)",
    )
    add(
        "--threads",
        type=positive_int,
        metavar="N",
        help="CPU threads (default: the config's, or torch's choice)",
    )
    add(
        "--with-lpips",
        action="store_true",
        help="also measure what the LPIPS metric costs at this image size",
    )
    add("--predict-only", action="store_true", help=(
        "predict the memory of training in every setting, and stop before latency is measured"
    ))  # fmt: skip
    add("--no-training", action="store_true", help="neither predict nor measure the memory of training")
    add("--measure-training", action="store_true", help=(
        "measure the training step on a CPU too (resident memory); on a GPU it always is"
    ))  # fmt: skip
    add("--training-steps", type=training_steps, default=MIN_TRAINING_STEPS, metavar="N", help=(
        f"optimizer steps of each measured training ({MIN_TRAINING_STEPS} at least, the default)"
    ))  # fmt: skip
    add("--memory-limit", type=memory_size, metavar="SIZE", help=(
        "host memory that a measuring or predicting process may hold, such as 8GiB; one that holds more is ended, and "
        "its size counts as out of memory (default: what is free when it starts)"
    ))  # fmt: skip
    add("--no-cache", action="store_true", help=(
        "trace for the prediction anew and keep no traces (else: in ~/.cache/swinmr-profiling, 100 MiB at most)"
    ))  # fmt: skip
    add_budget_options(parser)
    add("--list-gpus", action="store_true", help="list the known GPUs and exit")
    add("--resume", action="store_true", help="go on from the partial profile that --output names")
    add(
        "--output",
        default=DEFAULT_OUTPUT,
        metavar="FILE",
        help=f"default {DEFAULT_OUTPUT}; - is standard output",
    )
    add("--allow-unknown", action="store_true", help="unknown keys of the config are warnings")
    add(
        "--trust-config",
        action="store_true",
        help="let the config import and run your own class (net_type custom)",
    )
    add_report_options(add)
    add("--list-models", nargs="?", const="types", choices=LISTS, metavar="PACKAGE", help=(
        "list the network types and exit; spandrel, restoration: their architectures"
    ))  # fmt: skip
    parsed = parser.parse_args(arguments, namespace=ProfileArguments())
    if parsed.measure_training and parsed.no_training:
        parser.error("argument --measure-training: not allowed with argument --no-training")
    if parsed.predict_only and parsed.no_training:
        parser.error("--predict-only and --no-training leave nothing to do")
    if (contradiction := conflict(parsed, DEFAULT_OUTPUT)) is not None:
        parser.error(contradiction)
    if (contradiction := source_conflict(parsed)) is not None:
        parser.error(contradiction)
    return parsed


def listed_models() -> str:
    """The network types a config can name, one a line."""
    return "\n".join(f"{name:13} {text}" for name, text in MODELS.items())


def with_image_size(loaded: LoadedConfig, image_hw: list[int] | None) -> LoadedConfig:
    """The config with another image size, checked again. Raises ConfigError where it does not fit.

    A training patch larger than the new image gives way: training then sees the whole image.
    """
    if image_hw is None:
        return loaded
    raw = loaded.config.model_dump(mode="json")
    if raw["model"]["net_type"] == "transformers":
        raise ConfigError(
            loaded.file, ["--image-size: a transformers model has no image size: set model.inputs"]
        )
    if raw["model"]["net_type"] == "custom" and raw["model"]["input_shapes"] is None:
        raise ConfigError(
            loaded.file, ["--image-size changes input_shapes, and model.inputs is given: change it there"]
        )
    if raw["model"]["net_type"] == "custom":
        raw["model"]["input_shapes"] = [[*shape[:-2], *image_hw] for shape in raw["model"]["input_shapes"]]
    else:
        raw["model"]["img_size"] = image_hw[0] if image_hw[0] == image_hw[1] else image_hw
    messages = loaded.messages
    patch_hw = loaded.config.training_patch_hw
    if loaded.config.data.use_patches and patch_hw is not None and min(image_hw) < max(patch_hw):
        raw["data"]["use_patches"] = False
        messages += (
            f"--image-size: the patch of {max(patch_hw)} is larger: training would see whole images",
        )
    return dataclasses.replace(loaded, config=config_from_dict(raw), messages=messages)

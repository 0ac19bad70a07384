"""The options of `profile_model.py`: parsed, checked, and turned into what the run and the reports take."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence

from swinmr_profiling.configs import ConfigError, LoadedConfig, config_from_dict
from swinmr_profiling.configs.schema import SystemSection
from swinmr_profiling.profiler.isolation.measuring_session import MeasureOptions
from swinmr_profiling.profiler.options.budget_options import BUDGET, HOW_MANY_DEVICES, named_cards
from swinmr_profiling.profiler.options.option_types import OneLineParser, Options, add_options, first_of
from swinmr_profiling.profiler.record.memory_fingerprint import PRECISIONS
from swinmr_profiling.profiler.reports.exports import Exports
from swinmr_profiling.profiler.run.context import RunOptions, TrainingOptions
from swinmr_profiling.profiler.run.options.measuring_options import (
    COUNTING,
    MEASURING,
    TRAINING,
)
from swinmr_profiling.profiler.run.options.network_options import NETWORK, source_conflict

DEFAULT_OUTPUT, SEVERAL_OUTPUT = "results/profile_results.json", "results"
# What people look at.
REPORTS: Options = {
    "--output": dict(default=DEFAULT_OUTPUT, metavar="FILE", help=f"default {DEFAULT_OUTPUT}; -: stdout"),
    "--resume": dict(action="store_true", help="go on from the partial profile in --output"),
    "--report": dict(metavar="FILE", help="also one whole HTML file (extra: report)"),
    "--csv": dict(metavar="FILE", help="also CSV, a line per batch size"),
    "--markdown": dict(metavar="FILE", help="also Markdown, to paste into an issue"),
    "--plot": dict(metavar="DIR", help="also the charts as SVG and PNG (extra: report)"),
    "--benchmark-json": dict(metavar="FILE", help="also the figures for github-action-benchmark"),
    "--github-summary": dict(
        action="store_true", help="also Markdown in the summary of a GitHub Actions job"
    ),
    "--memory-snapshot": dict(metavar="FILE", help="the predicted step for pytorch.org/memory_viz"),
    "--trace": dict(metavar="FILE", help="also a measured pass for Perfetto (.json, .gz)"),
    "--private": dict(action="store_true", help="leave out paths, command line, machine's name"),
    "--quiet": dict(action="store_true", help="the answer alone; failures on standard error"),
    "--verbose": dict(action="store_true", help="also percentiles, intervals, assumptions, the environment"),
}


GROUPS: dict[str, Options] = {
    "which network": {
        "--config": dict(metavar="FILE", help="the config (every key: configs/README.md)"),
        **NETWORK,
    },
    "what is measured": MEASURING,
    "what is counted": COUNTING,
    "training, and the GPUs to recommend for": {**TRAINING, **BUDGET},
    "what is printed and written": REPORTS,
}


def conflict(parsed: argparse.Namespace) -> str | None:
    """What is wrong with these options together, or None. Settles --output for several configs."""
    measuring = {"--trace": parsed.trace, "--energy": parsed.energy, "--loader": parsed.loader}
    measured = [name for name, asked in measuring.items() if asked and parsed.predict_only]
    of_one = {
        "--benchmark-json": parsed.benchmark_json,
        "--memory-snapshot": parsed.memory_snapshot,
        "--trace": parsed.trace,
    }
    single = [name for name, file in of_one.items() if file is not None]
    several = parsed.configs is not None or parsed.models is not None
    option, each = ("--models", "network") if parsed.configs is None else ("--configs", "config")
    found = first_of(
        (
            parsed.measure_training and parsed.no_training,
            "argument --measure-training: not allowed with argument --no-training",
        ),
        (parsed.strategy and parsed.devices == 1, HOW_MANY_DEVICES),
        (parsed.predict_only and parsed.no_training, "--predict-only and --no-training leave nothing to do"),
        (
            parsed.memory_snapshot is not None and parsed.no_training,
            "argument --memory-snapshot: not allowed with argument --no-training",
        ),
        (
            measured,
            f"argument {''.join(measured[:1])}: not allowed with argument --predict-only, which measures nothing",
        ),
        (parsed.quiet and parsed.verbose, "--quiet and --verbose contradict each other"),
        (
            parsed.config is not None and parsed.configs is not None,
            "--config and --configs: name the configs in one of them",
        ),
        (several and single, f"{''.join(single[:1])} names one file: profile one network at a time"),
        (
            several and parsed.output == "-",
            f"{option} writes a profile for each {each}: --output names a folder, not -",
        ),
    )
    if several and parsed.output == DEFAULT_OUTPUT:
        parsed.output = SEVERAL_OUTPUT
    return found or source_conflict(parsed)


def exports_of(parsed: argparse.Namespace) -> Exports:
    return Exports(
        report=parsed.report,
        csv=parsed.csv,
        markdown=parsed.markdown,
        plots=parsed.plot,
        benchmark=parsed.benchmark_json,
        github_summary=parsed.github_summary,
    )


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


class ProfileArguments(argparse.Namespace):
    """The parsed options."""

    def run_options(self, system: SystemSection, command_line: Sequence[str]) -> RunOptions:
        """What the run takes: the command's options, and the config's `system` section where one is not given."""
        measure = MeasureOptions(
            device=self.device,
            precision=self.precision or PRECISIONS[system.mixed_precision],
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
                cards=named_cards(self),
                # A report shows the alternatives, asked for by name or not.
                levers=bool(self.predict_only or self.gpu or self.gpu_memory or self.report),
                headroom=self.headroom,
                reserved_bytes=self.reserved or 0,
                target_batch=self.target_batch,
                devices=self.devices,
                strategies=tuple(self.strategy),
                measure=True if self.measure_training else None,
                steps=self.training_steps,
                cache=not self.no_cache,
            ),
            command_line=tuple(command_line),
            private=self.private,
            memory_snapshot=self.memory_snapshot,
            trace=self.trace,
            energy=self.energy,
            loader=self.loader,
        )


def parse_profile_arguments(arguments: Sequence[str]) -> ProfileArguments:
    """Parses the command line; ends the process with status 2 and one line when it is wrong."""
    parser = OneLineParser(
        prog="profile_model.py",
        description="Profile a network: parameters, MACs, latency, memory, the training batch.",
    )
    for title, options in GROUPS.items():
        add_options(parser.add_argument_group(title), options)
    parsed = parser.parse_args(arguments, namespace=ProfileArguments())
    if (contradiction := conflict(parsed)) is not None:
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

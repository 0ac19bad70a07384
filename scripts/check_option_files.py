#!/usr/bin/env python3
"""Prints what each config and option file of a folder gives: network, batch, patch, losses, or why it is none.

    python scripts/check_option_files.py path/to/options

Nothing is built, nothing is run. Exit status: 0 all files give a config, 4 some do not, 2 no file.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

import swinmr_profiling.command  # takes this folder off sys.path
from swinmr_profiling.configs import ConfigError, ExperimentConfig, load_config
from swinmr_profiling.configs.error_words import one_line
from swinmr_profiling.configs.option_files.basicsr import VIDEO_NETWORKS
from swinmr_profiling.configs.option_files.networks import network_scale
from swinmr_profiling.configs.writing.standard_streams import say
from swinmr_profiling.input_error import InputError
from swinmr_profiling.profiler.options.exit_codes import EXIT_DONE, EXIT_PARTIAL
from swinmr_profiling.profiler.options.option_types import parse_options

SUFFIXES = (".json", ".yml", ".yaml", ".toml")


def described(config: ExperimentConfig) -> str:
    """One line: what would be trained."""
    model, training = config.model, config.training
    network = getattr(model, "architecture", None) or getattr(model, "name", None) or model.net_type
    if model.net_type == "custom":
        network = f"{model.target} {'x'.join(map(str, (model.input_shapes or [[]])[0]))}"
    kwargs = getattr(model, "kwargs", {})
    scale = getattr(model, "upscale", None) or network_scale(kwargs)
    # RRDBNet x2 takes each 2 x 2 pixels as channels, and enlarges by 4.
    if isinstance(scale, int) and isinstance(kwargs.get("shuffle_factor"), int):
        scale //= kwargs["shuffle_factor"]
    frames = getattr(model, "frames", None) if network in VIDEO_NETWORKS else None
    patch = config.training_patch_hw
    precision = config.system.mixed_precision
    parts = [
        f"{network}" + (f" x{scale}" if scale != 1 else "") + (f", {frames} frames" if frames else ""),
        f"batch {config.data.batch_size} per device",
        *([f"accumulate {training.accumulate}"] if training.accumulate > 1 else []),
        "patch " + ("whole image" if patch is None else f"{patch[0]}x{patch[1]}"),
        f"{training.optimizer.type} {training.optimizer.lr:g}",
        losses(config),
        f"EMA {training.ema_decay:g}" if training.ema_decay else "no EMA",
        {"False": "fp32", "True": "mixed precision"}.get(str(precision), str(precision)),
    ]
    return "; ".join(parts)


def losses(config: ExperimentConfig) -> str:
    """The losses and their weights."""
    loss = config.training.loss
    if loss.type not in ("auto", "multi_component") or (
        loss.type == "auto" and config.model.net_type != "swinir"
    ):
        return f"loss {loss.type}"
    parts = loss.components
    found = (
        (parts.spatial.weight, parts.spatial.type),
        (parts.frequency.weight, f"{parts.frequency.type} of k-space"),
        (parts.perceptual.weight, f"{parts.perceptual.type}{parts.perceptual.layers}"),
        (parts.ssim.weight, "ssim"),
    )
    return " + ".join(f"{weight:g} {words}" for weight, words in found if weight)


@swinmr_profiling.command.entry_point
def main(arguments: list[str]) -> int:
    """Runs the command and returns its exit status."""
    parsed = parse_options(
        argparse.ArgumentParser(description="Print what each config and option file of a folder gives."),
        arguments,
        {
            "folder": dict(type=Path),
            "--quiet": dict(action="store_true", help="without what was mapped and left out"),
        },
    )
    files = sorted(
        file for file in parsed.folder.rglob("*") if file.suffix.lower() in SUFFIXES and file.is_file()
    )
    if not files:
        raise InputError(f"{parsed.folder}: no file ending in {', '.join(SUFFIXES)} in it")
    outcomes: Counter[str] = Counter()
    for file in files:
        name = file.relative_to(parsed.folder)
        try:
            loaded = load_config(file)
        except ConfigError as error:
            outcomes["not loaded"] += 1
            say(f"✗ {name}: {'; '.join(error.problems)}")
            continue
        except Exception as error:  # a file that nobody has thought of: told, and the others are read
            outcomes["failed"] += 1
            say(f"✗ {name}: unexpected {one_line(error)}")
            continue
        outcomes["loaded"] += 1
        say(f"✓ {name}: {described(loaded.config)}")
        if not parsed.quiet:
            for message in loaded.messages:
                say(f"    {message}")
    share = outcomes["loaded"] / len(files)
    counts = ", ".join(f"{count} {what}" for what, count in sorted(outcomes.items()))
    say(f"{len(files)} files: {counts} ({share:.1%} understood)")
    return EXIT_DONE if outcomes["loaded"] == len(files) else EXIT_PARTIAL


if __name__ == "__main__":
    swinmr_profiling.command.run(main)

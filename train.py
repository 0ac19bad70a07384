#!/usr/bin/env python3
"""Trains the network of a JSON config.

    python train.py --config configs/train_packaged.json
    python train.py --config configs/train_packaged.json --resume-recipe checkpoint
    torchrun --nproc-per-node 2 train.py --config configs/train_packaged.json

Exit status: 0 done, 2 bad arguments, config, data or checkpoint, 4 stopped (a signal; a loss, a gradient or weights
that are not numbers), 1 unexpected. Whatever ends a run, the state before it is saved where it is whole.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "src"))

import swinmr_profiling.command  # takes this folder off sys.path
from swinmr_profiling.configs.writing.atomic_files import OutputError
from swinmr_profiling.configs.writing.standard_streams import complain, say
from swinmr_profiling.input_error import InputError
from swinmr_profiling.profiler.options.config_option import config_told_of
from swinmr_profiling.profiler.options.exit_codes import EXIT_BAD_INPUT, EXIT_DONE, EXIT_PARTIAL
from swinmr_profiling.profiler.options.option_types import OneLineParser, device


def parse(arguments: list[str]) -> argparse.Namespace:
    """The options of the command."""
    parser = OneLineParser(prog="train.py", description="Train the network of a JSON config.")
    parser.add_argument("--config", required=True, metavar="FILE")
    parser.add_argument("--device", type=device, default="auto", help="auto (default), cpu, cuda, cuda:1")
    parser.add_argument(
        "--resume-recipe",
        choices=("config", "checkpoint"),
        default="config",
        help="after an edit of the config, go on with the config's recipe (default) or the checkpoint's",
    )
    parser.add_argument("--restart", action="store_true", help="start anew though the folder has checkpoints")
    parser.add_argument(
        "--profile", metavar="FILE", help='for "batch_size": "auto", in place of training.profile'
    )
    parser.add_argument(
        "--allow-stale-profile",
        action="store_true",
        help="take the batch size of a profile of another config",
    )
    parser.add_argument("--allow-unknown", action="store_true", help="unknown keys are warnings")
    parser.add_argument("--trust-config", action="store_true", help="let the config import your own class")
    return parser.parse_args(arguments)


# What is profiled here, with the memory of its training, and trained by its own framework.
PROFILED_ONLY = {
    "timm": "a classifier, trained with labels that MRI data does not have: scripts/profile_model.py alone takes it",
    "transformers": "trained by its own package: scripts/profile_model.py alone takes it",
    "restoration": "trained by its own framework, such as BasicSR: scripts/profile_model.py alone takes it",
    "spandrel": "trained by its own framework, such as BasicSR: scripts/profile_model.py alone takes it",
}


@swinmr_profiling.command.entry_point
def main(arguments: list[str]) -> int:
    """Runs the command and returns its exit status."""
    parsed = parse(arguments)
    config = config_told_of(parsed).config
    kind = config.model.net_type
    if kind in PROFILED_ONLY:
        raise InputError(f"{parsed.config}: model.net_type {kind}: {PROFILED_ONLY[kind]}")
    if config.training.adversarial.weight:
        raise InputError(
            f"{parsed.config}: training.adversarial: a discriminator is trained by its own framework, such as "
            "BasicSR: scripts/profile_model.py alone takes it"
        )
    return train(config, parsed)


def chosen_batch_size(config, parsed: argparse.Namespace, world):
    """What the profile recommends for this device. Raises BatchSizeError."""
    import torch

    from swinmr_profiling.models.host_memory import available_bytes
    from swinmr_profiling.profiler.batch_size.choice_for_training import Device, choose_batch_size
    from swinmr_profiling.training.step.configured_step import loss_label

    if world.device.type == "cuda":
        properties = torch.cuda.get_device_properties(world.device)
        available = Device(properties.name, torch.cuda.mem_get_info(world.device)[1], world.size)
    else:
        available = Device("the CPU", available_bytes(), world.size)
    return choose_batch_size(
        config,
        Path(parsed.profile or config.training.profile),
        available,
        config_file=parsed.config,
        loss=loss_label(config),
        allow_stale=parsed.allow_stale_profile,
    )


def planned(config, parsed: argparse.Namespace, world):
    """The config as its plan has it trained, and a line that says so. Raises PlanError for one of another config."""
    import torch

    from swinmr_profiling.profiler.plan.errors import PlanError
    from swinmr_profiling.profiler.plan.plan_file import config_with_plan
    from swinmr_profiling.training.step.losses import build_loss

    if world.size > 1:
        raise PlanError("training.plan is for one device: name batch_size and accumulate for several")
    total_bytes = torch.cuda.mem_get_info(world.device)[1] if world.device.type == "cuda" else None
    return config_with_plan(
        config,
        Path(config.training.plan),
        loss=build_loss(config).label,
        config_file=parsed.config,
        total_bytes=total_bytes,
    )


def rescued(run) -> str:
    """What is left of a run that failed, in words."""
    if run.saved is None:
        return "no step was lost"
    if run.saved.name.startswith("step_"):
        return f"the state of step {run.state.step} is saved: {run.saved}"
    return f"that state is kept as {run.saved}; a run goes on from the newest step_*.pth beside it"


def train(config, parsed: argparse.Namespace) -> int:
    """Trains, and prints how it went; returns the exit status."""
    from swinmr_profiling.profiler.batch_size.choice_for_training import with_choice
    from swinmr_profiling.profiler.plan.errors import PlanError
    from swinmr_profiling.profiler.record.units import figure
    from swinmr_profiling.training.distributed import open_world
    from swinmr_profiling.training.errors import DataError
    from swinmr_profiling.training.run.checkpoints import CheckpointError
    from swinmr_profiling.training.run.loop import FAILURES, TrainingRun
    from swinmr_profiling.training.run.resumption import with_recipe_of_checkpoint
    from swinmr_profiling.training.run.run_folders import checkpoint_folder, run_folders
    from swinmr_profiling.training.run.stopping import stop_on_signals
    from swinmr_profiling.training.step.own_step import OwnStepError

    offloads = config.training.fsdp.offload_to_cpu
    with open_world(parsed.device, from_host=offloads) as world, stop_on_signals() as stop:
        kept: list[str] = []
        if parsed.resume_recipe == "checkpoint" and not parsed.restart:
            config, kept = with_recipe_of_checkpoint(config, checkpoint_folder(config))
        if config.training.plan is not None:
            config, message = planned(config, parsed, world)
            if world.is_first:
                say(message)
        elif config.data.batch_size == "auto":
            choice = chosen_batch_size(config, parsed, world)
            config = with_choice(config, choice)
            if world.is_first:
                say(choice.message)
        if config.training.checkpoint_budget is not None:
            from swinmr_profiling.profiler.plan.budgeted_modules import with_budget_resolved

            if world.size > 1:
                raise PlanError("a budget for checkpointing is for one device: name the modules for several")
            folder = run_folders(config).checkpoints
            config, message = with_budget_resolved(config, trust_config=parsed.trust_config, folder=folder)
            if message is not None:
                say(message)
        run = TrainingRun(config, world, stop, trust_config=parsed.trust_config)
        if parsed.restart:
            run.start_anew()
        else:
            run.resume()
        if world.is_first:
            for message in (*run.messages, *kept):
                say(message)
            sizes = run.batch_sizes
            say(
                f"batch {sizes['batch_size_per_device']} per device x {sizes['accumulate']} accumulated x "
                f"{sizes['devices']} devices = {sizes['global_batch_size']} per step; {run.total_steps} steps"
            )
            data = run.dataset.describe()
            say(f"data: {data['kspace']}")
            if data["mask_note"] is not None:
                say(data["mask_note"])
        try:
            result = run.run()
        except FAILURES as error:
            if world.is_first:
                complain(f"error: {error}; {rescued(run)}")
            return EXIT_BAD_INPUT if isinstance(error, DataError) else EXIT_PARTIAL
        except Exception as error:
            if not isinstance(error, (CheckpointError, OutputError, OwnStepError)):
                complain(f"unexpected; {rescued(run)}")
            raise
    if not world.is_first:
        return EXIT_DONE if result.stopped_by in (None, "early stopping") else EXIT_PARTIAL
    say(f"step {result.step} of {result.total_steps}; checkpoint {result.checkpoint}")
    if result.skipped:
        say(f"skipped {len(result.skipped)} training slices that cannot be read (data.on_error):")
        for one in result.skipped:
            say(f"  {one}")
    if result.images_per_second is not None:
        share = result.data_wait_share
        say(f"{figure(result.images_per_second)} images/s, {share:.1%} of the time waiting for data")
    if result.last_validation is not None:
        values = result.last_validation
        gained, zero_filled = values["val_psnr"], values["zero_filled_psnr"]
        if gained is not None and zero_filled is not None:
            say(
                f"validation: PSNR {gained:.2f} dB, zero-filled {zero_filled:.2f} dB ({gained - zero_filled:+.2f} dB); "
                f"sampled fraction {values['sampled_fraction']:.3f}"
            )
        elif gained is None:  # a denoiser whose validation samples no images
            say(f"validation: loss {values['val_loss']:.4g}")
    if result.stopped_by is not None:
        again = "the same command without --restart" if parsed.restart else "the same command"
        say(f"stopped by {result.stopped_by}; {again} goes on from there")
    return EXIT_DONE if result.stopped_by in (None, "early stopping") else EXIT_PARTIAL


if __name__ == "__main__":
    swinmr_profiling.command.run(main)

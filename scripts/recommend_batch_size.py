#!/usr/bin/env python3
"""Recommends a training batch size from a saved profile, for any GPU, without measuring.

    python scripts/recommend_batch_size.py results/profile_results.json --gpu "RTX 3090" --target-batch 64
    python scripts/recommend_batch_size.py results/profile_results.json --gpu-memory 24GiB --gpu-memory 80GiB
    python scripts/recommend_batch_size.py results/profile_results.json --gpu "RTX 3090" --devices 4 --strategy ddp,fsdp

Exit status: 0 done, 2 bad file or arguments, 3 nothing fits any GPU named, 4 no batch can be recommended for another
reason than memory or the answer could not be printed, 1 unexpected.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

import swinmr_profiling.command  # takes this folder off sys.path
from swinmr_profiling.configs.writing.standard_streams import complain
from swinmr_profiling.profiler.batch_size.fit import share_per_device
from swinmr_profiling.profiler.batch_size.training_profile import (
    TrainingProfile,
    check_config_matches,
    read_training_profile,
    write_recommendation,
)
from swinmr_profiling.profiler.batch_size.training_recommendation import (
    needs_exit_3,
    recommend_training,
)
from swinmr_profiling.profiler.options.exit_codes import (
    EXIT_DONE,
    EXIT_NOTHING_FITS,
    EXIT_PARTIAL,
)
from swinmr_profiling.profiler.record.blocks.recommended import TrainingRecommendation
from swinmr_profiling.profiler.record.files.reading import ProfileFileError
from swinmr_profiling.profiler.reports.console.gpus import print_gpus
from swinmr_profiling.profiler.reports.console.strategies import print_strategies
from swinmr_profiling.profiler.reports.console.terminal import Console, report_columns
from swinmr_profiling.profiler.reports.console.training import print_training_recommendation
from swinmr_profiling.profiler.run.options.recommendation_command_line import (
    RecommendationArguments,
    parse_recommendation_arguments,
)


def recommend(parsed: RecommendationArguments, console: Console) -> int:
    """Reads, recommends, prints, writes. Raises InputError."""
    profile = read_training_profile(parsed.profile)
    if parsed.write is not None:
        check_config_matches(parsed.write, profile)
    # A measurement of one device outranks a prediction; what each of several holds besides is added to it.
    is_measured = any(block.source == "measured" for block in profile.measured.values())
    if parsed.devices > 1 and (parsed.strategy or not is_measured):
        return recommend_by_strategy(parsed, profile, console)
    recommendations = recommend_training(
        profile.memory_model,
        parsed.budgets(profile),
        target_batch=parsed.target_batch,
        devices=parsed.devices,
        measured=profile.measured,
        training_samples=parsed.training_samples,
    )
    print_training_recommendation(console, profile.memory_model, recommendations)
    if needs_exit_3(recommendations):
        complain("error: nothing fits any GPU named (see the reason above)")
        return EXIT_NOTHING_FITS
    if all(entry.batch_size is None for entry in recommendations):
        complain("error: no batch size can be recommended (see the reason above)")
        return EXIT_PARTIAL
    write(parsed, recommendations[0], console)
    return EXIT_DONE


def write(parsed: RecommendationArguments, entry: TrainingRecommendation, console: Console) -> None:
    """Writes what is recommended into the config, where that was asked for."""
    if parsed.write is None:
        return
    write_recommendation(parsed.write, entry)
    values = f"data.batch_size {entry.batch_size}, training.accumulate {entry.accumulate}"
    console.line()
    console.good(f"{values} written to {parsed.write}", indent=0)


def recommend_by_strategy(parsed: RecommendationArguments, profile: TrainingProfile, console: Console) -> int:
    """Predicts each strategy, DDP where none is named, and prints their table."""
    from swinmr_profiling.profiler.run.strategy_recommendation import (
        config_and_precision,
        predict_strategies,
        recommend_strategies,
        strategy_block,
    )

    budgets = parsed.budgets(profile)
    share_per_device(parsed.target_batch, parsed.devices)  # refused before minutes go into predictions
    if profile.memory_model is None:
        raise ProfileFileError(f"{profile.file}: holds no predicted memory: --strategy needs it")
    asked = parsed.strategy or ["ddp"]
    predictions = predict_strategies(
        *config_and_precision(profile.file),
        asked,
        parsed.devices,
        trust_config=parsed.trust_config,
        on_refused=lambda strategy, reason: complain(f"error: {strategy} is not predicted: {reason}"),
    )
    found = recommend_strategies(profile.memory_model, predictions, budgets, target_batch=parsed.target_batch)
    print_strategies(console, [strategy_block(*one) for one in zip(predictions, found, strict=True)])
    everything = [entry for entries in found for entry in entries]
    if all(entry.batch_size is None for entry in everything):
        if needs_exit_3(everything):
            complain("error: nothing fits any GPU named under any strategy")
            return EXIT_NOTHING_FITS
        complain("error: no batch size can be recommended")
        return EXIT_PARTIAL
    if found[0][0].batch_size is not None and predictions[0].strategy == asked[0]:
        write(parsed, found[0][0], console)
    return EXIT_DONE if len(predictions) == len(asked) else EXIT_PARTIAL


@swinmr_profiling.command.entry_point
def main(arguments: list[str]) -> int:
    """Runs the command and returns its exit status."""
    parsed = parse_recommendation_arguments(arguments)
    console = Console(width=report_columns(), verbose=parsed.verbose)
    if parsed.list_gpus:
        print_gpus(console)
        return EXIT_DONE
    code = recommend(parsed, console)
    return EXIT_PARTIAL if code == EXIT_DONE and console.failed else code


if __name__ == "__main__":
    swinmr_profiling.command.run(main)

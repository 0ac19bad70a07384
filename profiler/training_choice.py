"""On the machine that will train: the batch size is searched for with trials, and what is recommended has run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from profiler.prediction_steps import budget_of, cards
from profiler.run_context import Card, RunContext
from profiler.search_record import SearchResult
from profiler.training_blocks import training_block
from profiler.training_console import print_training_recommendation
from profiler.training_fit import config_setting, needed_bytes
from profiler.training_recommendation import recommend_training
from profiler.training_steps import search_training_batch


def choose_training_batch(context: RunContext) -> None:
    """Searches for the largest batch, then fills `recommendation.training` (this GPU first) and `.search`."""
    profile, options = context.profile, context.options.training
    context.console.line()
    context.console.line("  Searching for the training batch size")
    gpu = profile.environment["gpu"]
    version = profile.environment["packages"]["torch"]
    own_card = Card(gpu["name"], gpu["total_bytes"], gpu["compute_capability"])
    own = replace(budget_of(own_card, options, version), is_this_machine=True)
    setting = None if profile.memory_model is None else config_setting(profile.memory_model)

    def predict(batch_size: int) -> int:
        return needed_bytes(setting, batch_size, own)

    found = search_training_batch(
        context, None if setting is None else predict, headroom_share=float(options.headroom)
    )
    others = [card for card in cards(context) if card.name != gpu["name"]] if options.cards else []
    budgets = [own, *(budget_of(card, options, version) for card in others)]
    profile.recommendation = {
        **(profile.recommendation or {"inference": None}),
        "training": recommend_training(
            profile.memory_model,
            budgets,
            target_batch=options.target_batch,
            devices=options.devices,
            measured=measured_blocks(profile.batch_profiling, found),
        ),
        "search": found.to_json(),
    }
    print_training_recommendation(context.console, profile.memory_model, profile.recommendation["training"])
    context.save()


def measured_blocks(batch_profiling: dict[str, Any], found: SearchResult) -> dict[str, dict[str, Any]]:
    """Every training step that ran, of the sweep and of the search, by batch size."""
    tried = {str(size): {"training": training_block(raw)} for size, raw in found.measurements.items()}
    return {**tried, **{size: block for size, block in batch_profiling.items() if "training" in block}}

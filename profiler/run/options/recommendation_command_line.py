"""The options of `recommend_batch_size.py`, and the budgets they describe."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace

from swinmr_profiling.input_error import InputError
from swinmr_profiling.profiler.allocator.workspaces import WorkspaceTableError
from swinmr_profiling.profiler.batch_size.budget import Budget, budget_on
from swinmr_profiling.profiler.batch_size.gpus import is_this_gpu
from swinmr_profiling.profiler.batch_size.training_profile import TrainingProfile
from swinmr_profiling.profiler.options.budget_options import BUDGET, HOW_MANY_DEVICES, Card, named_cards
from swinmr_profiling.profiler.options.option_types import (
    OneLineParser,
    Options,
    add_options,
    first_of,
    positive_int,
)

OPTIONS: Options = {
    "profile": dict(nargs="?", metavar="PROFILE.json", help="written by profile_model.py"),
    **BUDGET,
    "--trust-config": dict(action="store_true", help="with --devices: let the config import your own class"),
    "--training-samples": dict(
        type=positive_int,
        metavar="N",
        help="samples of one epoch, for its time where training steps were measured",
    ),
    "--write": dict(
        metavar="CONFIG",
        help="set data.batch_size and training.accumulate in this config file, for the one GPU named",
    ),
    "--verbose": dict(action="store_true", help="also reasons, intervals and what the prediction assumes"),
    "--list-gpus": dict(action="store_true", help="list the GPUs that --gpu knows and exit"),
}


class NoBudgetError(InputError):
    """No GPU to recommend for; one line for the user."""


class RecommendationArguments(argparse.Namespace):
    """The parsed options."""

    def budgets(self, profile: TrainingProfile) -> list[Budget]:
        """Of the named cards and sizes; where none is named, of the GPU that the profile was made on.

        Raises NoBudgetError.
        """
        cards, own = named_cards(self), profile.gpu
        if not cards and own is None:
            raise NoBudgetError(
                f'{profile.file} was made without a GPU: say which one: --gpu "RTX 3090", or --gpu-memory 24GiB'
            )
        if not cards and own is not None:
            cards = [Card.of(own)]
        return [self._budget(card, profile) for card in cards]

    def _budget(self, card: Card, profile: TrainingProfile) -> Budget:
        """Of the GPU that the profile was made on less what others held then, unless the user says what they take."""
        if profile.torch_version is None:
            raise NoBudgetError(f"{profile.file} does not say which torch it was made with")
        held, is_own = self.reserved or 0, profile.gpu is not None and is_this_gpu(*card, profile.gpu)
        if profile.gpu is not None and is_own:
            card, held = Card.of(profile.gpu), profile.held_by_others_bytes if self.reserved is None else held
        try:
            budget = budget_on(
                *card,
                torch_version=profile.torch_version,
                reserved_elsewhere_bytes=held,
                headroom_share=self.headroom,
            )
        except WorkspaceTableError as error:
            raise NoBudgetError(f"{profile.file}: {error}") from None
        return replace(budget, is_this_machine=is_own)


def parse_recommendation_arguments(arguments: Sequence[str]) -> RecommendationArguments:
    """Parses the command line; ends the process with status 2 and one line when it is wrong."""
    parser = OneLineParser(
        prog="recommend_batch_size.py",
        description="Recommend a training batch size from a saved profile, without measuring.",
    )
    add_options(parser, OPTIONS)
    parsed = parser.parse_args(arguments, namespace=RecommendationArguments())
    wrong = first_of(
        (
            parsed.profile is None and not parsed.list_gpus,
            "which profile? For example results/profile_results.json",
        ),
        (
            parsed.write is not None and len(parsed.gpu) + len(parsed.gpu_memory) > 1,
            "--write: one config takes one batch size: name one GPU",
        ),
        (parsed.strategy and parsed.devices == 1, HOW_MANY_DEVICES),
        (
            len(parsed.strategy) > 1 and parsed.write is not None,
            "--write: one config takes one batch size: name one strategy",
        ),
    )
    if wrong is not None:
        parser.error(wrong)
    return parsed

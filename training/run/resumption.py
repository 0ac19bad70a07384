"""Going on from a checkpoint with a config that was edited since: what differs, what may, what cannot.

A checkpoint holds the config that it was trained with. The network and the kind of the optimizer are what its weights
and moments belong to; all else may be edited, and is then said.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swinmr_profiling.configs import ConfigError, ExperimentConfig, config_from_dict
from swinmr_profiling.training.run.checkpoints import CheckpointError, CheckpointFolder

# Of `model`: what shapes the training, the images or the start, and not the function that the weights make.
DROPPED_AT_RANDOM = ("model.drop_rate", "model.attn_drop_rate", "model.drop_path_rate")
NOT_THE_NETWORK = (
    *DROPPED_AT_RANDOM, "model.img_size", "model.init_type", "model.init_bn_type", "model.init_gain",
    "model.input_shapes", "model.training_input_shapes", "model.cross_check_input_shapes", "model.input_dtypes",
)  # fmt: skip
# The recipe: what decides about the weights of a step, and how many steps there are ...
RECIPE = ("data", "training", "system.seed", "system.mixed_precision", *DROPPED_AT_RANDOM)
# ... but for where the data lies and how the same steps are carried out, watched and kept.
NOT_THE_RECIPE = (
    "data.batch_size", "data.val_batch_size", "data.source", "data.train_dir", "data.val_dir", "data.test_dir",
    "data.num_workers", "data.prefetch_factor", "data.pin_memory", "data.on_error", "data.max_skipped_samples",
    "training.accumulate", "training.on_host",
    "training.gradient_checkpointing", "training.profile", "training.plan", "training.checkpoint_every_steps",
    "training.keep_checkpoints", "training.validate_every_epochs", "training.validate_every_steps",
    "training.initial_weights", "training.step_folder", "training.assume",
)  # fmt: skip
# What validation measures, and by what the best is chosen: figures from before an edit are not to be compared.
MEASURED_BY = (
    "data.degradation", "data.normalisation", "data.source", "data.val_dir", "data.phantom", "evaluation.convention",
    "model.img_size", "model.input_shapes",
)  # fmt: skip
SAMPLED_BY = ("evaluation.sampling",)
LOSS = ("training.loss", "training.diffusion")


@dataclass(frozen=True)
class Difference:
    """One key of the config that the checkpoint was trained with another value of. Without a value: `None`."""

    path: str
    was: Any
    is_now: Any

    def is_in(self, places: Iterable[str]) -> bool:
        """Whether the key is one of these, or in one of these sections."""
        return any(self.path == place or self.path.startswith(f"{place}.") for place in places)

    @property
    def is_of_the_recipe(self) -> bool:
        return self.is_in(RECIPE) and not self.is_in(NOT_THE_RECIPE)

    def __str__(self) -> str:
        return f"{self.path}: {json.dumps(self.was)} -> {json.dumps(self.is_now)}"


def config_of(content: Mapping[str, Any]) -> ExperimentConfig | None:
    """The config that a checkpoint was trained with; None where it has none, or none that can be read any more.

    A key that is younger than the checkpoint has its default, one that is gone is left out.
    """
    raw = content.get("config")
    if not isinstance(raw, dict):
        return None
    try:
        return config_from_dict(raw, allow_unknown=True)
    except ConfigError:
        return None


def differences(was: ExperimentConfig, is_now: ExperimentConfig) -> list[Difference]:
    """Every key with another value, in the order of the config."""
    then, now = (dict(_leaves(config.model_dump(mode="json"))) for config in (was, is_now))
    return [
        Difference(path, then.get(path), now.get(path))
        for path in dict.fromkeys([*then, *now])
        if then.get(path) != now.get(path) and not (path == "data.batch_size" and now[path] == "auto")
    ]


def _leaves(section: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    for key, value in section.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


@dataclass(frozen=True)
class Edits:
    """What was edited between a checkpoint and a config; `differences` is None where the checkpoint does not say."""

    was: ExperimentConfig | None
    is_now: ExperimentConfig
    differences: list[Difference] | None

    def lines(self, file: Path) -> list[str]:
        """What a user is told."""
        if self.differences is None:
            return [f"{file} does not say what it was trained with: what was edited since is not known"]
        if not self.differences:
            return []
        told = [f"  {difference}" for difference in self.differences]
        return ["edited since the checkpoint; from here on the new values count:", *told]

    @property
    def best_is_comparable(self) -> bool:
        """Whether the best validation of before can be held against later ones."""
        if self.was is None or self.differences is None:
            return True
        metric = self.is_now.early_stopping_metric
        places = [*MEASURED_BY]
        places += SAMPLED_BY if self.is_now.is_denoiser else ()
        places += LOSS if metric == "val_loss" else ()
        changed = any(difference.is_in(places) for difference in self.differences)
        return not changed and self.was.early_stopping_metric == metric


def compare_with_checkpoint(config: ExperimentConfig, content: Mapping[str, Any], file: Path) -> Edits:
    """What was edited since the checkpoint.

    Raises CheckpointError for another network (that its weights' shapes do not tell) or kind of optimizer.
    """
    was = config_of(content)
    edits = Edits(was, config, None if was is None else differences(was, config))
    _refuse_another_network(edits.differences or [], file)
    kind, theirs = config.training.optimizer.type, _optimizer_kinds(was, content)
    if kind not in theirs:
        changed = f"training.optimizer.type: {' or '.join(theirs)} -> {kind}"
        raise CheckpointError(
            f"{file} holds the moments of another optimizer ({changed}), which cannot change on the way: take its kind "
            "(--resume-recipe checkpoint), another experiment_name, or --restart"
        )
    return edits


def _refuse_another_network(edited: Iterable[Difference], file: Path) -> None:
    for difference in edited:
        if difference.is_in(["model"]) and not difference.is_in(NOT_THE_NETWORK):
            raise CheckpointError(
                f"{file} is of another network ({difference}), which cannot change on the way: take its value, "
                "another experiment_name, or --restart"
            )


def _optimizer_kinds(was: ExperimentConfig | None, content: Mapping[str, Any]) -> Sequence[str]:
    """The kind that a checkpoint's optimizer state is of; the kinds it may be of where no config says it."""
    if was is not None:
        return [was.training.optimizer.type]
    [group, *_] = content["optimizer"]["param_groups"]
    if "betas" not in group:
        return ["sgd"]
    decoupled = group.get("decoupled_weight_decay")  # older versions of torch do not say
    return ["adam", "adamw"] if decoupled is None else ["adamw" if decoupled else "adam"]


def changed_splits(was: Mapping[str, Any], is_now: Mapping[str, Any]) -> dict[str, str]:
    """The splits that hold other slices than when the checkpoint was written, each with a line about it.

    was, is_now: split -> `training.data.dataset.identity`; a split that either does not have is not compared.
    """
    return {
        split: f"other {split} data: {was[split]['slices']} slices then, {data['slices']} now"
        for split, data in is_now.items()
        if split in was and was[split] != data
    }


def with_recipe_of_checkpoint(
    config: ExperimentConfig, folder: CheckpointFolder
) -> tuple[ExperimentConfig, list[str]]:
    """The config with the recipe that the folder's newest checkpoint was trained with, and what that keeps, in lines.

    The network, the places of data and results, the devices' share of a batch and all that does not change the
    weights of a step stay the config's. Raises CheckpointError for a checkpoint that does not say its recipe, or
    whose recipe does not suit the config.
    """
    found = folder.latest()
    if found is None:
        return config, []
    content, file, _ = found
    was = config_of(content)
    if was is None:
        raise CheckpointError(
            f"{file} does not say what it was trained with: --resume-recipe config goes on from it"
        )
    edited = differences(was, config)
    _refuse_another_network(edited, file)
    kept = [difference for difference in edited if difference.is_of_the_recipe]
    raw = config.model_dump(mode="json")
    for difference in kept:
        *sections, key = difference.path.split(".")
        section = raw
        for name in sections:
            section = section[name]
        section[key] = difference.was
    try:
        config = config_from_dict(raw)
    except ConfigError as error:
        reason = "; ".join(line.strip() for line in str(error).splitlines())
        raise CheckpointError(f"{file}: its recipe does not suit the config: {reason}") from error
    lines = [f"  {d.path}: {json.dumps(d.was)} (the config has {json.dumps(d.is_now)})" for d in kept]
    return config, ["kept as the checkpoint was trained:", *lines] if kept else []

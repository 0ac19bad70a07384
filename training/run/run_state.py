"""A training run as it stands: network, data and optimizer of a config, found again in a checkpoint, kept in one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import torch
from torch.utils.data import DataLoader

from swinmr_profiling.configs import ExperimentConfig
from swinmr_profiling.models.checkpoints.published_weights import load_weights
from swinmr_profiling.models.registry import build_model
from swinmr_profiling.training.data.dataset import ReconstructionDataset, build_dataset, identity
from swinmr_profiling.training.data.loader import TrainingBatches, build_loader
from swinmr_profiling.training.data.skipping import SkippedSamples
from swinmr_profiling.training.data.sources import has_split
from swinmr_profiling.training.denoising.denoising_step import build_preparation, refuse_further_inputs
from swinmr_profiling.training.denoising.denoising_validation import build_batch_result
from swinmr_profiling.training.distributed import World
from swinmr_profiling.training.errors import first_line
from swinmr_profiling.training.run.checkpoint_content import (
    check_moments,
    check_parts,
    rest_of_content,
    restore_state,
    state_content,
    whole_content,
)
from swinmr_profiling.training.run.checkpoints import (
    CheckpointError,
    check_architecture,
    random_states,
    restore_random_states,
)
from swinmr_profiling.training.run.own_training import OwnTraining, refuse_another_step
from swinmr_profiling.training.run.resumption import (
    changed_splits,
    compare_with_checkpoint,
    refuse_other_adapters,
)
from swinmr_profiling.training.run.run_folders import checkpoint_folder, run_folders
from swinmr_profiling.training.run.step_guard import NonFiniteWeightsError, first_non_finite
from swinmr_profiling.training.run.stopping import Progress, StopRequest
from swinmr_profiling.training.step.attention_kernels import allow_attention_kernels
from swinmr_profiling.training.step.losses import build_loss
from swinmr_profiling.training.step.training_step import TrainingState, build_settings, build_state
from swinmr_profiling.training.strategies.engine import build_engine
from swinmr_profiling.training.strategies.sharded_state import own_part


class RunState:
    """What a run in one process of the world goes on with from step to step."""

    def __init__(
        self, config: ExperimentConfig, world: World, stop: StopRequest, *, trust_config: bool = False
    ) -> None:
        """Builds data, network, loss and step. Raises DataError, LossError, ModelError for what cannot be."""
        self.config, self.world, self.stop = config, world, stop
        self.messages: list[str] = []
        if config.system.threads is not None:
            torch.set_num_threads(config.system.threads)
        torch.use_deterministic_algorithms(config.system.deterministic)
        allow_attention_kernels(config.system.attention, world.device.type)
        # Every process builds the same network; what is drawn in the steps differs from rank to rank.
        torch.manual_seed(config.system.seed)
        built = build_model(config, trust_config=trust_config)
        if config.training.initial_weights is not None:
            load_weights(built.module, Path(config.training.initial_weights))
        self.dataset = build_dataset(config, "train")
        self.data = {"train": identity(self.dataset)}
        rank, size = world.rank, world.size
        self.train_loader = build_loader(config, "train", dataset=self.dataset, rank=rank, world_size=size)
        self.prepare = build_preparation(config, rank, size)
        refuse_further_inputs(built, config)
        self.val_loader: DataLoader | None = None
        slices: ReconstructionDataset | None = None
        self.engine = build_engine(config, size, world.device)
        # Every pass through a sharded network is one of all processes: each of them validates all slices.
        self.validating = World(rank, 1, world.device) if self.engine.shards_parameters else world
        if has_split(config, "val"):
            among = self.validating.size
            self.val_loader = build_loader(config, "val", rank=rank if among > 1 else 0, world_size=among)
            slices = cast("ReconstructionDataset", self.val_loader.dataset)
            self.data["val"] = identity(slices)
        else:
            self.messages.append(
                "no validation: data.val_dir is not set, so no checkpoint is chosen as the best"
            )
        loss = build_loss(config).to(world.device)
        self.messages.append(f"loss: {loss.label}")
        self.messages += loss.skipped
        self.accumulation = config.training.accumulate
        self.batches_per_epoch = cast("TrainingBatches", self.train_loader.batch_sampler).batches_per_epoch
        self.total_steps = self._total_steps()
        self.settings = build_settings(config, world.device.type)
        self.result_of = build_batch_result(config, loss, slices, self.settings, world.device)
        self.early_stopping = config.training.early_stopping.model_copy(
            update={"metric": config.early_stopping_metric}
        )
        self.own: OwnTraining | None = None
        if config.training.step is None:
            # What is sharded goes to the device unit by unit.
            module = built.module if self.engine.shards_parameters else built.module.to(world.device)
            if config.system.channels_last:
                module.to(memory_format=torch.channels_last)
            self.state = build_state(
                config,
                module,
                loss,
                self.total_steps,
                wrap=self._wrap,
                shard=self.engine.shard,
                make_optimizer=self.engine.optimizer,
            )
        else:
            self._take_own_step(built.module, loss, trust_config)
        self.folders = run_folders(config)
        self.checkpoints = checkpoint_folder(config)
        self.progress = Progress()
        self._owns_folder = False
        self._starts_anew = False
        self.skipped = SkippedSamples(config.data.max_skipped_samples)
        # The newest file that this run wrote, and the step that is in it.
        self.saved: Path | None = None
        self._saved_at: int | None = None
        self._first_step = 0
        # A validation that failed is made up for by the run that goes on.
        self._validation_is_due = False
        self._last_validation: dict[str, Any] | None = None
        torch.manual_seed(config.system.seed + world.rank)

    def _take_own_step(self, module: torch.nn.Module, loss: torch.nn.Module, trust_config: bool) -> None:
        """The step that the config names in place of this project's. module: the config's own network."""
        self.own = own = OwnTraining(self.config, self.world, trust_config=trust_config)
        self.state, self.prepare = own.state(loss, self.world.device), own.prepare
        self.messages.append(
            f"training.step {own.target}: its own loss, optimizer, schedule and precision; those of the config are "
            "not used, its loss is validation's"
        )
        shapes = [{name: x.shape for name, x in one.state_dict().items()} for one in (module, own.network)]
        if shapes[0] != shapes[1]:
            self.messages.append(
                "its network is another than `model` names: test.py and exports would not take its checkpoints"
            )
        if self.config.training.initial_weights is not None:
            load_weights(own.network, Path(self.config.training.initial_weights))

    def _wrap(self, module: torch.nn.Module) -> torch.nn.Module:
        network = self.engine.wrap(module)
        return cast("torch.nn.Module", torch.compile(network)) if self.config.system.compile else network

    def _total_steps(self) -> int:
        training = self.config.training
        by_epochs = None
        if training.epochs is not None:
            by_epochs = max(training.epochs * self.batches_per_epoch // self.accumulation, 1)
        return min(limit for limit in (by_epochs, training.step_limit) if limit is not None)

    @property
    def batch_sizes(self) -> dict[str, int]:
        """Samples per device and micro-batch, micro-batches per step, devices, and their product."""
        per_device = self.config.data.batch_size
        assert per_device != "auto"  # the loader has refused it
        return {
            "batch_size_per_device": per_device,
            "accumulate": self.accumulation,
            "devices": self.world.size,
            "global_batch_size": per_device * self.accumulation * self.world.size,
        }

    def resume(self) -> bool:
        """Goes on from the newest readable checkpoint of this run's folder; False where there is none.

        Weights, moments, averages, random states and the step are the checkpoint's, all else is the config's; every
        difference between the two configs is in `messages`. Raises CheckpointError for a checkpoint of another
        architecture, kind of optimizer or global batch.
        """
        found = self.checkpoints.latest()
        if found is None:
            return False
        content, file, complaints = found
        self.messages += complaints
        check_parts(content, file, self.total_steps)
        try:
            self._restore(content, file)
        except CheckpointError:
            raise
        except (
            KeyError,
            TypeError,
            ValueError,
            IndexError,
            AttributeError,
            RuntimeError,
            OverflowError,
        ) as error:
            raise CheckpointError(
                f"{file} is damaged: its parts do not fit together ({type(error).__name__}: {first_line(error)})"
            ) from error
        if self.world.is_first:
            self.checkpoints.make_last(file)
        return True

    def _restore(self, content: dict[str, Any], file: Path) -> None:
        was, is_now = content["batch_sizes"], self.batch_sizes
        if was["global_batch_size"] != is_now["global_batch_size"]:
            raise CheckpointError(
                f"{file} was trained with a global batch of {was['global_batch_size']} "
                f"({was['batch_size_per_device']} x {was['accumulate']} accumulated x {was['devices']} devices), this "
                f"run has {is_now['global_batch_size']}: change data.batch_size or training.accumulate"
            )
        refuse_another_step(self.own, content, file)
        refuse_other_adapters(self.config, content, file)
        check_architecture(self.state.module, content, file)
        edits = compare_with_checkpoint(self.config, content, file)
        check_moments(self.state.optimizer, content, file)
        notes = restore_state(self.state, content, file)
        if self.own is not None:
            notes += self.own.restore(content, file)
        self.messages.append(f"resumed from {file}, step {self.state.step}")
        self.messages += [*edits.lines(file), *notes]
        self.progress = Progress(**content["progress"])
        changed = changed_splits(content.get("data") or {}, self.data)
        self.messages += changed.values()
        if self.progress.best is not None and not (edits.best_is_comparable and "val" not in changed):
            self.messages.append("the best validation so far was measured otherwise: the best is chosen anew")
            self.progress = Progress()
        self._owns_folder = True
        self._first_step = self.state.step
        self.skipped.restore(content.get("skipped", []))
        self._validation_is_due = content.get("validation_is_due", False) and self.val_loader is not None
        states = content["random_states"]
        if was == is_now:
            restore_random_states(states[self.world.rank])
        else:
            self.messages.append(
                "resumed on other devices: the same global batch, but not bit for bit the same run"
            )

    def start_anew(self) -> None:
        """In place of `resume`: checkpoints that are there are moved aside by the first new one, and not before.

        The log of before is moved aside when this run's begins.
        """
        self._starts_anew = True
        if not self.checkpoints.is_empty:
            self.messages.append(
                f"started anew: the first checkpoint moves what {self.folders.checkpoints} holds aside"
            )

    def _content(self, of_state: Callable[[TrainingState], dict[str, Any]]) -> dict[str, Any]:
        return {
            **of_state(self.state),
            **({} if self.own is None else {"own_step": self.own.content()}),
            "progress": asdict(self.progress),
            "batch_sizes": self.batch_sizes,
            "random_states": self.world.gather(random_states()),
            "config": self.config.model_dump(mode="json"),
            "data": self.data,
            "skipped": self.skipped.to_json(),
            "validation_is_due": self._validation_is_due,
        }

    def _whole(self, state: TrainingState) -> dict[str, Any]:
        return (whole_content if self.engine.shards_states else state_content)(state)

    def _save(self) -> None:
        """Saves the state as the newest. Raises NonFiniteWeightsError, with the state kept aside."""
        spoiled = first_non_finite(self.state)
        spoiled_anywhere = self.world.any(spoiled is not None)
        in_parts = self.engine.shards_states and self.state.step < self.total_steps and not spoiled_anywhere
        content = self._content(rest_of_content if in_parts else self._whole)
        if self.world.is_first:
            self._make_room()
        if in_parts:
            self.saved = self.checkpoints.save_sharded(
                own_part(self.state), content, is_first=self.world.is_first
            )
        elif self.world.is_first:
            save = self.checkpoints.save_aside if spoiled_anywhere else self.checkpoints.save
            self.saved = save(content)
        self._saved_at = self.state.step
        if spoiled_anywhere:
            name = self.world.first(spoiled)
            raise NonFiniteWeightsError(f"the weights of step {self.state.step} are not finite ({name})")

    def _save_best(self, is_first: bool) -> None:
        content = self._content(self._whole)
        if self.world.any(first_non_finite(self.state) is not None):
            return
        if self.world.is_first:
            self._make_room()
            self.checkpoints.save_best(content, is_first=is_first)

    def _make_room(self) -> None:
        """Before the first checkpoint of a run that did not go on from those that are there."""
        if not self._owns_folder:
            self.checkpoints.set_aside()
            self._owns_folder = True

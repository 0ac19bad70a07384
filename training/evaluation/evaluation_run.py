"""From a config and a checkpoint to the files of an evaluation."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import default_collate
from tqdm import tqdm

from swinmr_profiling.configs import ExperimentConfig, LoadedConfig
from swinmr_profiling.configs.writing.atomic_files import check_writable
from swinmr_profiling.configs.writing.output_claims import claim_free_folder, say_another_name
from swinmr_profiling.models.registry import build_model
from swinmr_profiling.training.data.dataset import build_dataset
from swinmr_profiling.training.data.loader import build_loader
from swinmr_profiling.training.data.sources import Split
from swinmr_profiling.training.denoising.diffusion_reconstruction import DiffusionSampler, build_sampler
from swinmr_profiling.training.errors import DataError
from swinmr_profiling.training.evaluation.evaluated_checkpoint import default_checkpoint, load_evaluated
from swinmr_profiling.training.evaluation.evaluation import (
    Evaluation,
    EvaluationOptions,
    ReconstructionError,
    evaluate,
)
from swinmr_profiling.training.evaluation.evaluation_summary import (
    PICTURES_NAME,
    SLICES_NAME,
    SUMMARY_NAME,
    bootstrap_block,
    compare,
    sampled_fractions,
    summarise_evaluation,
    summarise_sampling,
    volume_table,
    write_slices,
    write_summary,
)
from swinmr_profiling.training.evaluation.evaluation_tiling import (
    TileRequest,
    first_cut_slice,
    measure_difference,
    tile_evaluation,
)
from swinmr_profiling.training.evaluation.perceptual_metric import PerceptualChoice, choose_perceptual_metric
from swinmr_profiling.training.evaluation.picture_grid import Axes, axes_by_volume, write_picture_grid
from swinmr_profiling.training.evaluation.reconstruction_latency import measure_latency
from swinmr_profiling.training.run.run_folders import run_folders
from swinmr_profiling.training.step.attention_kernels import allow_attention_kernels
from swinmr_profiling.training.step.training_step import autocast_dtype
from swinmr_profiling.training.tiling.tiled_network import TiledNetwork

SCHEMA_VERSION = 1
CONSISTENCY = (
    "hard: where k-space was sampled, the measured samples replace those of the network's image; the phase (and each "
    "coil's share) of a magnitude is the zero-filled image's, and 0 where the data is magnitude"
)


@dataclass(frozen=True)
class EvaluationRequest:
    """What a user asks of one evaluation.

    checkpoint, output, lpips_weights: None for the run's own, the run's folder, what is at hand.
    limit: only the first so many slices. tile: None for whole images, whatever they need.
    """

    device: torch.device
    checkpoint: Path | None = None
    split: Split = "test"
    output: Path | None = None
    data_consistency: bool = False
    lpips_weights: Path | None = None
    limit: int | None = None
    trust_config: bool = False
    tile: TileRequest | None = None


def evaluation_folder(config: ExperimentConfig, request: EvaluationRequest) -> Path:
    """`--output`, or `evaluation` in the run's folder; another split than the test set has one of its own."""
    if request.output is not None:
        return request.output
    own = run_folders(config).checkpoints.parent
    return own / ("evaluation" if request.split == "test" else f"evaluation_{request.split}")


def run_evaluation(
    loaded: LoadedConfig, request: EvaluationRequest, stop: Callable[[], str | None] = lambda: None
) -> tuple[dict[str, Any], Path]:
    """Evaluates, writes the files, returns the summary and its folder.

    A file that could not be written is told in the summary's `not_written`; the figures are there all the same.

    Raises:
        ModelError, DataError, LossError, CheckpointError, PerceptualMetricError, ReconstructionError: for what
            cannot be used.
        OutputError: for files that cannot be written, before anything is measured.
    """
    config = loaded.config
    if request.tile is not None and config.is_denoiser:
        raise ReconstructionError(
            "--tile: a denoiser is sampled with whole images, whose k-space is kept at every step: leave it out"
        )
    if config.system.threads is not None:
        torch.set_num_threads(config.system.threads)
    allow_attention_kernels(config.system.attention, request.device.type)
    checkpoint = request.checkpoint or default_checkpoint(config)
    torch.manual_seed(config.system.seed)
    built = build_model(config, trust_config=request.trust_config)
    module = built.module
    identity = load_evaluated(module, checkpoint, config)
    choice = _perceptual(config, request)
    dataset = _whole_slices(config, request.split)
    loader = build_loader(config, request.split, dataset=dataset, batch_size=config.data.val_batch_size)
    folder = evaluation_folder(config, request)
    for name in (SUMMARY_NAME, SLICES_NAME, PICTURES_NAME):
        check_writable(folder / name, "--output" if request.output else "the evaluation")
    tiling = None
    if request.tile is not None:
        # While the network is still on the host, where it is found how far it looks.
        tiling = tile_evaluation(built, (volume.image_hw for volume in dataset.volumes), request.tile)
    asked = folder
    folder, held = claim_free_folder(asked, SUMMARY_NAME)
    if folder != asked:
        say_another_name(asked, folder)
    network = (module if tiling is None else tiling.network).to(request.device).eval()
    precision = autocast_dtype(config, request.device.type)
    options = EvaluationOptions(
        autocast_dtype=precision,
        perceptual=choice.metric,
        data_consistency=request.data_consistency,
        limit=request.limit,
        pictures=config.evaluation.num_samples_to_save if config.evaluation.save_images else 0,
        sampler=_sampler(config, request, precision),
    )
    _refuse_unknown_coils(dataset, options)
    total = len(dataset) if request.limit is None else min(request.limit, len(dataset))
    with tqdm(total=total, unit="slice", disable=None, file=sys.stderr) as bar:
        result = evaluate(network, loader, request.device, options, stop=stop, on_slices=bar.update)
    if tiling is not None and result.stopped_by is None:
        first = first_cut_slice(tiling, dataset.volumes)
        if first is not None:
            measure_difference(tiling, module, default_collate([dataset[first]]), request.device, precision)
    summary = {
        "schema_version": SCHEMA_VERSION,
        "kind": "evaluation",
        "time_utc": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "status": "complete" if result.stopped_by is None else "partial",
        "status_reason": result.stopped_by
        and f"stopped by {result.stopped_by} after {len(result.slices)} slices",
        "config": {
            "file": str(loaded.file),
            "sha256": loaded.sha256,
            "experiment_name": config.experiment_name,
        },
        "checkpoint": identity,
        "data": {
            **dataset.describe(),
            "split": request.split,
            "evaluated_volumes": len(result.volumes),
            "evaluated_slices": len(result.slices),
            "limit": request.limit,
            "sampled_fraction": sampled_fractions(result),
        },
        "data_consistency": _consistency_block(options),
        "tiling": None if tiling is None else tiling.block,
        "sampling": summarise_sampling(options.sampler, result),
        "metrics": {**summarise_evaluation(result), "perceptual": _perceptual_block(choice, result)},
        "bootstrap": bootstrap_block(len(result.volumes), *_notes_on_volumes(config)),
        "volumes": volume_table(result),
        "latency": None if result.stopped_by else _latency(network, dataset, request, options),
        "environment": {
            "device": str(request.device),
            "device_name": torch.cuda.get_device_name(request.device)
            if request.device.type == "cuda"
            else None,
            "torch": torch.__version__,
            "precision": "fp32" if precision is None else str(precision).removeprefix("torch."),
        },
    }
    _write(summary, result, choice, folder, axes_by_volume(dataset.volumes))
    held.release()
    return summary, folder


def _whole_slices(config: ExperimentConfig, split: Split):
    """The split without crops and turns, with the masks that validation uses: also of the training data."""
    dataset = build_dataset(config, split)
    if split == "train":
        dataset.training, dataset.patch_hw, dataset.augmentation = False, None, None
    return dataset


def _refuse_unknown_coils(dataset, options: EvaluationOptions) -> None:
    """Data consistency needs what each coil saw: guessed from the zero-filled image it makes a perfect image worse."""
    sampler = options.sampler
    key = (
        "--data-consistency"
        if options.data_consistency or sampler is None
        else "data consistency of sampling"
    )
    applied = options.data_consistency if sampler is None else sampler.section.data_consistency
    name = dataset.without_sensitivities if applied else None
    if name is not None:
        raise ReconstructionError(
            f"{name} has several coils without sensitivities, which {key} needs: leave it out "
            "(--data-consistency, evaluation.sampling.data_consistency), or put sensitivity_maps into the file"
        )


def _notes_on_volumes(config: ExperimentConfig) -> list[str]:
    if config.data.resolved_source != "packaged":
        return []
    return ["packaged data: both volumes are one head at two times, so intervals say nothing of other heads"]


def _perceptual(config: ExperimentConfig, request: EvaluationRequest) -> PerceptualChoice:
    if request.lpips_weights is not None:
        return choose_perceptual_metric(request.lpips_weights, request.device)
    named = config.evaluation.lpips_weights
    file = None if named is None else Path(named)
    return choose_perceptual_metric(file, request.device, named_by="evaluation.lpips_weights")


def _perceptual_block(choice: PerceptualChoice, result: Evaluation) -> dict[str, Any]:
    """`lpips` and `st_lpips`, the one that was computed, null with the reason for the other."""
    block: dict[str, Any] = {"lpips": None, "st_lpips": None, "reason": choice.reason, "weights": None}
    block["notes"] = list(choice.notes)
    metric = choice.metric
    if metric is None:
        return block
    if result.perceptual_failure is not None:
        return {**block, "reason": result.perceptual_failure}
    if metric.name == "st_lpips":
        block["reason"] = "lpips: no trained AlexNet backbone; st_lpips stands beside it on its own scale"
    block["weights"] = str(metric.weights)
    block[metric.name] = {"definition": metric.definition, **compare(result.slices, metric.name)}
    return block


def _sampler(
    config: ExperimentConfig, request: EvaluationRequest, precision: torch.dtype | None
) -> DiffusionSampler | None:
    if not config.is_denoiser:
        return None
    return build_sampler(
        config, precision, **({"data_consistency": True} if request.data_consistency else {})
    )


def _consistency_block(options: EvaluationOptions) -> dict[str, Any]:
    sampler = options.sampler
    applied = options.data_consistency if sampler is None else sampler.section.data_consistency
    method = CONSISTENCY if sampler is None else f"at every step of sampling; {CONSISTENCY}"
    return {"applied": applied, "method": method if applied else None}


def _latency(network: nn.Module, dataset, request: EvaluationRequest, options: EvaluationOptions):
    one = default_collate([dataset[0]])
    image, sampler = one["input"].to(request.device), options.sampler
    if sampler is None:
        block = measure_latency(network, image, options.autocast_dtype)
        if isinstance(network, TiledNetwork) and network.is_cut((image.shape[-2], image.shape[-1])):
            what = "one image in tiles, input on the device and joined on the host"
            block["what"] = f"{what}; no loading, data consistency or metrics"
        return block
    single = replace(sampler, section=sampler.section.model_copy(update={"samples_per_slice": 1}))
    block = measure_latency(
        network, image, sampler.autocast_dtype, lambda: single.reconstruct(network, one, request.device)
    )
    what = f"one sample of one image, {sampler.calls} calls of the denoiser"
    return {**block, "what": f"{what}; no loading, data consistency or metrics"}


def _write(
    summary: dict[str, Any],
    result: Evaluation,
    choice: PerceptualChoice,
    folder: Path,
    axes: Mapping[str, Axes],
) -> None:
    """The table, the pictures, and last the summary, which says what is there. One that fails stops no other."""
    failures: list[str] = []
    summary |= {
        "slices_file": SLICES_NAME,
        "pictures": {"file": None, "reason": None},
        "not_written": failures,
    }
    if (
        not result.slices
    ):  # stopped before the first: figures of an earlier evaluation are not replaced by none
        failures.append(f"{folder}: no slice was evaluated, and what is there stays")
        return

    def attempt(name: str, write: Callable[[], object]) -> None:
        try:
            write()
        except OSError as error:
            failures.append(f"{folder / name}: {error.strerror or error}")

    def draw() -> None:
        title = f"{summary['config']['experiment_name']}, {summary['data']['split']} set; {summary['data']['kspace']}"
        try:
            shown = write_picture_grid(result.pictures, folder / PICTURES_NAME, title, axes)
        except DataError as error:
            summary["pictures"]["reason"] = str(error)
        else:
            summary["pictures"] |= {"file": PICTURES_NAME, **shown}

    perceptual = None if choice.metric is None or result.perceptual_failure else choice.metric.name
    attempt(SLICES_NAME, lambda: write_slices(result.slices, folder / SLICES_NAME, perceptual))
    if result.pictures:
        attempt(PICTURES_NAME, draw)
    else:
        reason = "no slices kept (evaluation.save_images, evaluation.num_samples_to_save)"
        summary["pictures"]["reason"] = reason
    attempt(SUMMARY_NAME, lambda: write_summary(summary, folder / SUMMARY_NAME))

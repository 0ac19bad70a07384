"""Images from local pipelines, each with what it cost."""

from __future__ import annotations

import inspect
import itertools
import json
import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from swinmr_profiling.configs.writing.atomic_files import OutputError, check_writable, replacing, write_text
from swinmr_profiling.configs.writing.output_claims import claim_free_folder, say_another_name
from swinmr_profiling.configs.writing.standard_streams import complain
from swinmr_profiling.profiler.measure.devices import PRECISIONS, resolve_device
from swinmr_profiling.profiler.pipelines.defined.folder_code import INDEX_NAME, refuse_code
from swinmr_profiling.profiler.pipelines.defined.json_records import FailedRecord, LiveRecord
from swinmr_profiling.profiler.pipelines.defined.libraries import require_library
from swinmr_profiling.profiler.pipelines.errors import PipelineError
from swinmr_profiling.profiler.pipelines.live.compute import create_profiler
from swinmr_profiling.profiler.record.result_file import to_text

DEFAULT_SIDE_PX = 512
DEFAULT_STEPS = 50
DEFAULT_GUIDANCE_SCALE = 7.5
MAX_SEED = 2**32
OUTPUTS = Path("outputs")
# Told a model's name and its profile.
OnProfile = Callable[[str, LiveRecord | FailedRecord], None]
CallArgument = str | list[str] | int | float | torch.Generator
CONFIG_NAME = "generation_config.json"


@dataclass(frozen=True)
class GenerationSettings:
    """What is asked of every model; None leaves it to the pipeline."""

    prompt: str
    negative_prompt: str | None = None
    height: int | None = None
    width: int | None = None
    num_inference_steps: int = DEFAULT_STEPS
    guidance_scale: float = DEFAULT_GUIDANCE_SCALE
    seed: int | None = None
    enable_profiling: bool = True
    device: str = "auto"
    precision: str | None = None
    allow_download: bool = False


def load_pipeline_object(model_id: str, settings: GenerationSettings) -> Any:
    """The diffusers pipeline of a local folder; of a hub name only where downloads are allowed.

    Raises PipelineError in one line for a name that is not a folder, or a folder that diffusers cannot load.
    """
    if not settings.allow_download and not Path(model_id).is_dir():
        raise PipelineError(
            f"model {model_id!r} is not a local folder: name one, or let it be fetched with --allow-download"
        )
    kind = require_library("diffusers").DiffusionPipeline
    dtype = PRECISIONS[settings.precision] if settings.precision else None
    try:
        # What was fetched is looked at before anything of it is loaded.
        folder = Path(model_id) if Path(model_id).is_dir() else Path(kind.download(model_id))
        refuse_code(folder)
        pipe = kind.from_pretrained(
            str(folder),
            torch_dtype=dtype,
            local_files_only=not settings.allow_download,
            **_left_out(folder),
        )
        return pipe.to(resolve_device(settings.device))
    except PipelineError:
        raise
    except Exception as error:
        reason = (str(error).splitlines() or [""])[0]
        raise PipelineError(
            f"model {model_id!r} cannot be loaded: {type(error).__name__}: {reason}"
        ) from error


def _left_out(folder: Path) -> dict[str, None]:
    """Components that a folder was saved without: diffusers wants to be told so again."""
    index = json.loads((folder / INDEX_NAME).read_text(encoding="utf-8"))
    return {name: None for name, entry in index.items() if entry == [None, None]}


def generate_image(
    model_id: str,
    prompt: str,
    *,
    pipe: Any = None,
    output_dir: str | Path | None = None,
    name: str | None = None,
    on_profile: OnProfile | None = None,
    **settings: Any,
) -> tuple[Any, str, int, LiveRecord | FailedRecord | None]:
    """Generates one image, writes it, and profiles the run.

    Args:
        model_id: a local pipeline folder.
        pipe: the pipeline, where it is loaded already.
        output_dir: of the PNG; outputs/<timestamp> by default. name: begins its file's name; the model's by default.
        on_profile: called with the model's name and its profile.
        **settings: fields of GenerationSettings (height, width, num_inference_steps, guidance_scale, seed,
            enable_profiling, negative_prompt, device, precision, allow_download).

    Returns:
        the image, the path of its PNG, the seed that was used, and the profile: None where profiling is off,
        `enabled: False` with the reason where the pipeline cannot be profiled.

    Raises PipelineError for a model that cannot be loaded or refuses the settings, and before anything is loaded
    OutputError for an image that cannot be written.
    """
    wanted = GenerationSettings(prompt, **settings)
    seed = secrets.randbelow(MAX_SEED) if wanted.seed is None else wanted.seed
    folder = Path(output_dir) if output_dir is not None else OUTPUTS / _timestamp()
    name = model_name(model_id) if name is None else name
    file = folder / f"{name}_seed{seed}.png"
    check_writable(file, "the image")
    if pipe is None:
        pipe = load_pipeline_object(model_id, wanted)
    arguments = call_arguments(pipe, wanted, seed)
    if hasattr(pipe, "set_progress_bar_config"):
        pipe.set_progress_bar_config(disable=None, leave=False)
    profiler = create_profiler(wanted.enable_profiling)
    try:
        with profiler.watch(pipe):
            image = pipe(**arguments).images[0]
    except (ValueError, TypeError) as error:
        reason = (str(error).splitlines() or [""])[0]
        raise PipelineError(f"model {model_id!r} refuses: {reason}") from error
    with replacing(file) as temporary:
        image.save(temporary, format="PNG")
    profile = None
    if wanted.enable_profiling:
        width, height = image.size
        sides: Any = (arguments.get("height") or height, arguments.get("width") or width)
        shape = (1, 3, *sides)
        profile = profiler.profile_pipeline(
            pipe, shape, wanted.num_inference_steps, model_id, wanted.guidance_scale
        )
        if on_profile is not None:
            on_profile(name, profile)
    return image, str(file), seed, profile


def generate_images_sequential(
    model_ids: Sequence[str],
    prompt: str,
    *,
    output_dir: str | Path | None = None,
    on_profile: OnProfile | None = None,
    **settings: Any,
) -> list[dict[str, Any]]:
    """Generates with one model after another; one that fails is recorded, and the rest go on.

    Writes generation_config.json after every model into outputs/<timestamp>, or `output_dir`.

    Returns:
        for each model its entry of that file, with the image under "image" (None where it failed).

    Raises OutputError for a folder that cannot be written, before any model is loaded.
    """
    wanted = GenerationSettings(prompt, **settings)
    folder = Path(output_dir) if output_dir is not None else OUTPUTS / _timestamp()
    check_writable(folder / CONFIG_NAME, "the list of images")
    asked = folder
    folder, held = claim_free_folder(asked, CONFIG_NAME)
    if folder != asked:
        say_another_name(asked, folder)
    started = datetime.now().isoformat(timespec="seconds")
    entries: list[dict[str, Any]] = []
    images: list[Any] = []
    names = _file_names(model_ids)
    for model_id in tqdm(model_ids, unit="model", disable=None, leave=False):
        entry = {"model_id": model_id, "model_name": names[model_id]}
        image = None
        try:
            image, file, seed, profile = generate_image(
                model_id, prompt, output_dir=folder, name=names[model_id], on_profile=on_profile, **settings
            )
            entry |= {"status": "done", "image_path": file, "seed": seed, "compute_profile": profile}
        except Exception as error:
            # Whatever went wrong in one model must not cost the user the images of the others.
            reason = (str(error).splitlines() or [""])[0]
            if not isinstance(error, (PipelineError, OutputError)):
                reason = f"{type(error).__name__}: {reason}"
            entry |= {"status": "failed", "error": reason, "image_path": None, "compute_profile": None}
            complain(f"error: {model_id}: {reason}")
        entries.append(entry)
        images.append(image)
        content = {"timestamp": started, "prompt": prompt, "settings": asdict(wanted), "models": entries}
        write_text(folder / CONFIG_NAME, to_text(content))
    held.release()
    return [{**entry, "image": image} for entry, image in zip(entries, images, strict=True)]


def _file_names(model_ids: Sequence[str]) -> dict[str, str]:
    """A file name for each model; numbered where two have one name, so that no image replaces another."""
    names: dict[str, str] = {}
    for model_id in model_ids:
        name = plain = model_name(model_id)
        numbers = itertools.count(2)
        while model_id not in names and name in names.values():
            name = f"{plain}_{next(numbers)}"
        names.setdefault(model_id, name)
    return names


def model_name(model_id: str) -> str:
    """A file name for a model: the folder's own, or the last part of a hub name."""
    last = (
        Path(model_id).resolve().name if Path(model_id).is_dir() else model_id.rstrip("/").rpartition("/")[2]
    )
    return re.sub(r"[^\w.-]+", "_", last) or "model"


def _timestamp() -> str:
    return datetime.now().strftime("%Y-%m-%d_%H-%M-%S")


def call_arguments(pipe: Any, settings: GenerationSettings, seed: int) -> dict[str, CallArgument]:
    """What the pipeline's call takes of the settings; a generator on the CPU gives the same noise everywhere."""
    accepted = inspect.signature(type(pipe).__call__).parameters
    wanted = {
        "prompt": settings.prompt,
        "negative_prompt": settings.negative_prompt,
        "height": settings.height,
        "width": settings.width,
        "num_inference_steps": settings.num_inference_steps,
        "guidance_scale": settings.guidance_scale,
        "generator": torch.Generator("cpu").manual_seed(seed),
    }
    return {name: value for name, value in wanted.items() if name in accepted and value is not None}

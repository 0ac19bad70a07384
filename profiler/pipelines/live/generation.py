"""Images and videos from local pipelines, each with what it cost."""

from __future__ import annotations

import itertools
import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, TypedDict

from tqdm import tqdm

from swinmr_profiling.configs.error_words import first_line, one_line
from swinmr_profiling.configs.writing.atomic_files import OutputError, check_writable, reason, write_text
from swinmr_profiling.configs.writing.output_claims import claim_free_folder, say_another_name
from swinmr_profiling.configs.writing.standard_streams import complain
from swinmr_profiling.profiler.pipelines.defined.json_records import FailedRecord, LiveRecord
from swinmr_profiling.profiler.pipelines.errors import PipelineError
from swinmr_profiling.profiler.pipelines.live.call_arguments import call_arguments, given
from swinmr_profiling.profiler.pipelines.live.compute import (
    DEFAULT_GUIDANCE_SCALE,
    DEFAULT_STEPS,
    create_profiler,
)
from swinmr_profiling.profiler.pipelines.live.loaded_pipeline import GenerationSettings, load_pipeline_object
from swinmr_profiling.profiler.pipelines.live.saved_output import KINDS, first_output, output_kind, save
from swinmr_profiling.profiler.pipelines.live.timed_run import timed_run
from swinmr_profiling.profiler.record.files.result_file import to_text

RANDOM_SEED = -1
MAX_SEED = 2**32
OUTPUTS = Path("outputs")
# Told a model's name and its profile.
OnProfile = Callable[[str, LiveRecord | FailedRecord], None]
CONFIG_NAME = "generation_config.json"


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
    """Generates one image, or video, writes it, and profiles the run.

    Args:
        model_id: a local pipeline folder.
        pipe: the pipeline, where it is loaded already.
        output_dir: of the file; outputs/<timestamp> by default. name: begins its name; the model's by default.
        on_profile: called with the model's name and its profile.
        **settings: fields of GenerationSettings (height, width, num_inference_steps, guidance_scale, seed,
            enable_profiling, negative_prompt, device, precision, scheduler, image, allow_download, enable_timing).

    Returns:
        the image (of a video its frames), the path of its PNG (GIF), the seed that was used, and the profile: None
        where profiling is off, `enabled: False` with the reason where the pipeline cannot be profiled.

    Raises PipelineError for a model that cannot be loaded, gives neither images nor videos or refuses the settings,
    all before anything is computed, and before anything is loaded OutputError for a file that cannot be written.
    """
    wanted = GenerationSettings(prompt, **settings)
    folder = Path(output_dir) if output_dir is not None else OUTPUTS / _timestamp()
    name = model_name(model_id) if name is None else name
    load = (lambda: load_pipeline_object(model_id, wanted)) if pipe is None else (lambda: pipe)
    return _generated(model_id, wanted, wanted.seed, folder / name, load, on_profile)


def _generated(
    model_id: str,
    wanted: GenerationSettings,
    seed: int | None,
    beginning: Path,
    load: Callable[[], Any],
    on_profile: OnProfile | None,
) -> tuple[Any, str, int, LiveRecord | FailedRecord | None]:
    """As generate_image; the file is `beginning` with the seed and the ending of its kind."""
    seed = secrets.randbelow(MAX_SEED) if seed is None or seed == RANDOM_SEED else seed
    start = beginning.with_name(f"{beginning.name}_seed{seed}")
    check_writable(f"{start}{KINDS['images']}", "the image")
    pipe = load()
    output_kind(pipe)
    arguments = call_arguments(pipe, wanted, seed)
    if hasattr(pipe, "set_progress_bar_config"):
        pipe.set_progress_bar_config(disable=None, leave=False)
    profiler = create_profiler(wanted.enable_profiling)
    timed = None
    try:
        with profiler.watch(pipe):
            result = pipe(**arguments)
        if wanted.enable_timing:
            again = call_arguments(pipe, wanted, seed)
            timed = timed_run(pipe, lambda: pipe(**again))
    except (ValueError, TypeError) as error:
        raise PipelineError(f"model {model_id!r} refuses: {first_line(error)}") from error
    image = first_output(result, type(pipe).__name__)
    is_video = isinstance(image, list)
    file = Path(f"{start}{KINDS['frames' if is_video else 'images']}")
    save(image, file)
    profile = None
    if wanted.enable_profiling:
        width, height = (image[0] if is_video else image).size
        sides: Any = (arguments.get("height") or height, arguments.get("width") or width)
        profile = profiler.profile_pipeline(
            *(pipe, (1, 3, *sides), given(pipe, arguments, "num_inference_steps", DEFAULT_STEPS), model_id),
            guidance_scale=given(pipe, arguments, "guidance_scale", DEFAULT_GUIDANCE_SCALE),
            timed=timed,
        )
        if on_profile is not None:
            on_profile(beginning.name, profile)
    return image, str(file), seed, profile


class ImageEntry(TypedDict, total=False):
    """One image of generation_config.json, and the image itself in what Python is given."""

    model_id: str
    model_name: str
    status: Literal["done", "failed"]
    seed: int
    error: str
    image_path: str | None
    compute_profile: LiveRecord | FailedRecord | None
    image: Any


def generate_images_sequential(
    model_ids: Sequence[str],
    prompt: str,
    *,
    output_dir: str | Path | None = None,
    count: int = 1,
    on_profile: OnProfile | None = None,
    **settings: Any,
) -> list[ImageEntry]:
    """Generates with one model after another; one that fails is recorded, and the rest go on.

    Writes generation_config.json after every image into outputs/<timestamp>, or `output_dir`.

    Args:
        count: images of every model, with seeds that follow one another.

    Returns:
        for each image its entry of that file, with the image under "image" (None where it failed).

    Raises OutputError for a folder that cannot be written, before any model is loaded.
    """
    wanted = GenerationSettings(prompt, **settings)
    folder = Path(output_dir) if output_dir is not None else OUTPUTS / _timestamp()
    check_writable(folder / CONFIG_NAME, "the list of images")
    asked = folder
    try:
        folder, held = claim_free_folder(asked, CONFIG_NAME)
    except OSError as error:
        raise OutputError(f"the folder of images {asked}: {reason(error)}") from error
    if folder != asked:
        say_another_name(asked, folder)
    started = datetime.now().isoformat(timespec="seconds")
    entries: list[ImageEntry] = []
    names = _file_names(model_ids)
    for model_id in tqdm(model_ids, unit="model", disable=None, leave=False):
        for entry in _entries_of(model_id, names[model_id], wanted, folder, count, on_profile):
            entries.append(entry)
            written = [{key: value for key, value in one.items() if key != "image"} for one in entries]
            content = {"timestamp": started, "prompt": prompt, "settings": asdict(wanted), "models": written}
            write_text(folder / CONFIG_NAME, to_text(content))
    held.release()
    return entries


def _entries_of(
    model_id: str,
    name: str,
    wanted: GenerationSettings,
    folder: Path,
    count: int,
    on_profile: OnProfile | None,
):
    """The entry of each image of one model; a model that cannot be loaded is one entry."""
    loaded: list[Any] = []

    def load() -> Any:
        if not loaded:
            loaded.append(load_pipeline_object(model_id, wanted))
        return loaded[0]

    for number in range(count):
        entry = ImageEntry(model_id=model_id, model_name=name, image=None)
        is_random = wanted.seed is None or wanted.seed == RANDOM_SEED
        try:
            entry["image"], file, seed, profile = _generated(
                *(model_id, wanted, None if is_random else (wanted.seed or 0) + number),
                *(folder / name, load, on_profile),
            )
            entry |= {"status": "done", "image_path": file, "seed": seed, "compute_profile": profile}
        except Exception as error:
            # Whatever went wrong in one model must not cost the user the images of the others.
            known = isinstance(error, (PipelineError, OutputError))
            line = first_line(error) if known else one_line(error)
            entry |= {"status": "failed", "error": line, "image_path": None, "compute_profile": None}
            complain(f"error: {model_id}: {line}")
        yield entry
        if not loaded:
            return


def _file_names(model_ids: Sequence[str]) -> dict[str, str]:
    """A file name for each model; numbered where two have one name, so that no image replaces another."""
    names: dict[str, str] = {}
    for model_id in dict.fromkeys(model_ids):
        plain = model_name(model_id)
        numbered = (f"{plain}_{number}" for number in itertools.count(2))
        names[model_id] = next(n for n in itertools.chain([plain], numbered) if n not in names.values())
    return names


def model_name(model_id: str) -> str:
    """A file name for a model: the folder's own, or the last part of a hub name."""
    last = (
        Path(model_id).resolve().name if Path(model_id).is_dir() else model_id.rstrip("/").rpartition("/")[2]
    )
    return re.sub(r"[^\w.-]+", "_", last) or "model"


def _timestamp() -> str:
    return datetime.now().strftime("%Y-%m-%d_%H-%M-%S")

"""A definition read from a local pipeline folder of the diffusers layout; the weights in it are not opened.

`model_index.json` names a class for every component; each has a folder with its config. What those files do not
say (how often text encoders run, how guidance reaches the denoiser, how resolutions are rounded) is taken from the
definition of the same pipeline class that comes with the project.

Python code in such a folder, which loading it would run, is refused. Some releases of diffusers import a module that
`model_index.json` names from the folder itself, others ask for `trust_remote_code` first. What is refused here does not
depend on the release.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from swinmr_profiling.profiler.pipelines.defined.definition import (
    Component,
    PipelineDefinition,
    TextEncoder,
    list_pipelines,
    load_pipeline,
)
from swinmr_profiling.profiler.pipelines.errors import PipelineError

INDEX_NAME = "model_index.json"
DENOISERS = ("transformer", "unet")
DECODERS = ("vae", "movq")
DEFAULT_SIDE_PX = 512
# A tokenizer that knows no limit says so with a number like 1e30.
LONGEST_FIXED_PROMPT = 512
UNKNOWN_ENCODER_TOKENS = 256


def read_pipeline_folder(folder: Path) -> PipelineDefinition:
    """The definition of a pipeline folder.

    Raises PipelineError where it is not such a folder, or a component that its index names is missing or broken.
    """
    if not folder.is_dir():
        raise PipelineError(f"{folder}: no such folder")
    index = _read_json(folder / INDEX_NAME, "a pipeline folder has one")
    pipeline_class = index.get("_class_name")
    if not isinstance(pipeline_class, str):
        raise PipelineError(f"{folder / INDEX_NAME}: _class_name does not name a pipeline class")
    components = {
        name: tuple(entry)
        for name, entry in index.items()
        if isinstance(entry, list) and len(entry) == 2 and all(isinstance(part, str) for part in entry)
    }
    template = template_for(pipeline_class)
    if template is None:
        raise PipelineError(
            f"{folder}: no prediction is written for {pipeline_class}: --measure runs it once and counts what it does"
        )
    denoiser = _one_of(folder, components, DENOISERS, "denoiser")
    vae = _one_of(folder, components, DECODERS, "decoder")
    if "scheduler" not in components:
        raise PipelineError(f"{folder}: its model_index.json names no scheduler")
    scheduler = _read_json(folder / "scheduler" / "scheduler_config.json", "component scheduler is missing")
    # Of a pipeline whose prediction has no prior, that of the folder is not read.
    priors = ("prior_prior", "prior") if template.prior is not None else ()
    encoders, extra_context = _text_encoders(folder, components, template)
    factor = template.vae_scale_factor
    side = denoiser.config.get("sample_size")
    native = side * (factor or 8) if isinstance(side, int) else DEFAULT_SIDE_PX
    return replace(
        template,
        name=folder.resolve().name,
        title=f"{pipeline_class} in {folder.resolve().name}",
        checkpoint=str(folder),
        source="local folder",
        pipeline_class=pipeline_class,
        scheduler=components["scheduler"][1],
        scheduler_config={key: value for key, value in scheduler.items() if not key.startswith("_")},
        native_resolution=native,
        denoiser=denoiser,
        vae=vae,
        text_encoders=encoders,
        extra_context_tokens=extra_context,
        prior=template.prior_as(_first(folder, components, *priors)),
        image_encoder=_first(folder, components, "prior_image_encoder"),
        safety_checker=_first(folder, components, "safety_checker"),
        vae_scale_factor=None,
        notes=_not_costed(folder, components, template),
    )


def _not_costed(
    folder: Path, components: dict[str, tuple[str, str]], template: PipelineDefinition
) -> tuple[str, ...]:
    """A note that names the networks of the index which the cost does not hold; none where there is no such."""
    costed = {*DENOISERS, *DECODERS, "safety_checker", "prior_image_encoder"}
    if template.prior is not None:
        costed |= {"prior_prior", "prior"}
    others = [
        name
        for name in components
        if name not in costed and "text_encoder" not in name and (folder / name / "config.json").is_file()
    ]
    return (f"not costed: {', '.join(others)}",) if others else ()


def template_for(pipeline_class: str) -> PipelineDefinition | None:
    """The project's definition of a pipeline class, for what a folder does not say."""
    known = map(load_pipeline, list_pipelines())
    return next((one for one in known if one.pipeline_class == pipeline_class), None)


def _read_json(file: Path, otherwise: str) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise PipelineError(f"{file}: not there: {otherwise}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise PipelineError(f"{file}: cannot be read as JSON: {error}") from error
    if not isinstance(content, dict):
        raise PipelineError(f"{file}: expected a JSON object")
    return content


def _component(folder: Path, components: dict[str, tuple[str, str]], name: str) -> Component:
    library, class_name = components[name]
    raw = _read_json(folder / name / "config.json", f"component {name} of model_index.json is missing")
    if library not in ("diffusers", "transformers"):
        # The safety checker is listed under the pipeline's own module.
        library = f"diffusers.pipelines.{library}"
        if class_name == "StableDiffusionSafetyChecker":
            library += ".safety_checker"
    return Component(f"{library}.{class_name}", raw)


def _one_of(folder: Path, components: dict, names: tuple[str, ...], what: str) -> Component:
    if (found := _first(folder, components, *names)) is None:
        raise PipelineError(f"{folder}: its model_index.json names no {what} ({' or '.join(names)})")
    return found


def _first(folder: Path, components: dict, *names: str) -> Component | None:
    return next((_component(folder, components, name) for name in names if name in components), None)


def _text_encoders(
    folder: Path, components: dict, template: PipelineDefinition
) -> tuple[tuple[TextEncoder, ...], int]:
    found = {}
    for name in sorted(n for n in components if "text_encoder" in n):
        component = _component(folder, components, name)
        file = folder / name.replace("text_encoder", "tokenizer") / "tokenizer_config.json"
        limit = _read_json(file, "").get("model_max_length") if file.is_file() else None
        found[name] = (component, limit)
    return match_text_encoders(found, template)


def match_text_encoders(
    found: dict[str, tuple[Component, Any]], template: PipelineDefinition
) -> tuple[tuple[TextEncoder, ...], int]:
    """Text encoders with the calls and lengths of the template's of the same class.

    Args:
        found: for each name the network, and its tokenizer's limit (None where it has none).

    Returns:
        the encoders, and the tokens that those of the template that are left out would have handed on.
    """
    known = list(template.text_encoders)
    encoders: list[TextEncoder] = []
    for name, (component, limit) in found.items():
        same = next((encoder for encoder in known if encoder.class_name == component.class_name), None)
        tokens = _tokens(component, limit)
        if same is not None:
            known.remove(same)
        else:
            same = TextEncoder("", {}, tokens=tokens, context_tokens=0 if encoders else tokens)
        if same.padding == "fixed" and tokens != same.tokens:
            same = replace(same, tokens=tokens, context_tokens=tokens if same.context_tokens else 0)
        path, config = component.class_path, component.config
        encoders.append(replace(same, name=name, note=None, class_path=path, config=config, parameters=None))
    return tuple(encoders), sum(encoder.context_tokens for encoder in known)


def _tokens(encoder: Component, tokenizer_limit: Any) -> int:
    """What prompts are padded to: the tokenizer's limit, or the positions the encoder has."""
    limits = (tokenizer_limit, encoder.config.get("max_position_embeddings"))
    fixed = (limit for limit in limits if isinstance(limit, int) and 0 < limit <= LONGEST_FIXED_PROMPT)
    return next(fixed, UNKNOWN_ENCODER_TOKENS)


def index_without_code(folder: Path) -> dict[str, Any]:
    """The index of a folder. Raises PipelineError where it names Python code of its own, or cannot be read to tell."""
    try:
        index = json.loads((folder / INDEX_NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise PipelineError(f"{folder / INDEX_NAME}: cannot be read: {type(error).__name__}") from error
    if not isinstance(index, dict):
        raise PipelineError(f"{folder / INDEX_NAME}: expected a JSON object")
    for what in _named_code(folder, index):
        raise PipelineError(
            f"{folder}: its {INDEX_NAME} names code ({what}), which loading would run: a folder of weights and configs "
            "alone can be used"
        )
    return index


def _named_code(folder: Path, index: dict[str, object]) -> Iterator[str]:
    kind = index.get("_class_name")
    if not isinstance(kind, str):  # [module, class] of a custom pipeline
        yield f"_class_name {json.dumps(kind)}"
    for name in ("custom_pipeline", "_custom_pipeline"):
        if name in index:
            yield f"{name} {json.dumps(index[name])}"
    for name, entry in index.items():
        if name.startswith("_") or not isinstance(entry, list) or not entry or entry[0] is None:
            continue
        module = entry[0]
        if isinstance(module, str) and module.isidentifier():
            for place in (f"{name}/{module}.py", f"{module}.py", f"{module}/__init__.py"):
                if (folder / place).is_file():
                    yield str(Path(place))
        elif not (isinstance(module, str) and module.startswith(("diffusers.", "transformers."))):
            # diffusers imports "a.b" as it stands: any module of the machine.
            yield f"{name} {json.dumps(entry)}"

"""Whatever a pipeline's definition or folder holds: the records made of it, or PipelineError."""

import json

import pytest
from hypothesis import example, given

from swinmr_profiling.profiler.pipelines.defined.definition import (
    DEFINITIONS_DIR,
    PipelineDefinition,
    read_definition,
)
from swinmr_profiling.profiler.pipelines.defined.folder import read_pipeline_folder
from swinmr_profiling.profiler.pipelines.errors import PipelineError
from tests.properties.mutated_files import as_text, damaged, nearly

TEXTS = [
    (DEFINITIONS_DIR / f"{name}.json").read_text() for name in ("sd15", "flux1-schnell", "kandinsky-2.2")
]
DEFINITIONS = [json.loads(text) for text in TEXTS]
# A pipeline folder as one document: its files by name.
FOLDER = {
    "model_index.json": {
        "_class_name": "StableDiffusionPipeline",
        "unet": ["diffusers", "UNet2DConditionModel"],
        "vae": ["diffusers", "AutoencoderKL"],
        "scheduler": ["diffusers", "PNDMScheduler"],
        "text_encoder": ["transformers", "CLIPTextModel"],
        "tokenizer": ["transformers", "CLIPTokenizer"],
        "safety_checker": [None, None],
    },
    "unet/config.json": {
        "_class_name": "UNet2DConditionModel",
        "sample_size": 8,
        "block_out_channels": [32, 64],
    },
    "vae/config.json": {"_class_name": "AutoencoderKL", "latent_channels": 4},
    "scheduler/scheduler_config.json": {"_class_name": "PNDMScheduler", "steps_offset": 1},
    "text_encoder/config.json": {"max_position_embeddings": 77, "hidden_size": 32},
    "tokenizer/tokenizer_config.json": {"model_max_length": 77},
}


def is_one_line(error):
    assert "\n" not in str(error)
    str(error).encode("utf-8")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("pipelines")


@pytest.mark.slow
@given(document=nearly(DEFINITIONS))
@example(document={**DEFINITIONS[0], "pipeline": ["a"]})
@example(document={**DEFINITIONS[0], "text_encoders": ["encoder"]})
def test_definitions(place, document):
    define(place / "some.json", as_text(document))


@given(text=damaged(TEXTS))
@example(text="[" * 100_000)
def test_damaged_definitions(place, text):
    define(place / "some.json", text)


def define(file, text):
    file.write_text(text, encoding="utf-8", errors="replace")
    try:
        definition = read_definition(file)
    except PipelineError as error:
        is_one_line(error)
    else:
        assert isinstance(definition, PipelineDefinition)


@pytest.mark.slow
@given(document=nearly([FOLDER]))
def test_folders(place, document):
    read_folder(place, document)


def test_a_folder_whose_files_are_nested_without_end(place):
    for name in FOLDER:
        read_folder(place, FOLDER, {name: '{"a": ' * 100_000})


def read_folder(place, document, texts=()):
    folder = place / "folder"
    for name in FOLDER:
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.unlink(missing_ok=True)
        if name in texts:
            file.write_text(texts[name])
        elif isinstance(document, dict) and name in document:
            file.write_text(as_text(document[name]))
    try:
        read_pipeline_folder(folder)
    except PipelineError as error:
        is_one_line(error)

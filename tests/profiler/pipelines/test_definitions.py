"""The definitions that come with the project, and how prompts' lengths follow from them."""

import json

import pytest

from swinmr_profiling.profiler.pipelines.defined.definition import (
    DEFINITIONS_DIR,
    TextEncoder,
    list_pipelines,
    load_pipeline,
    read_definition,
)
from swinmr_profiling.profiler.pipelines.errors import PipelineError


def test_all_24_are_there_and_say_where_from():
    names = list_pipelines()
    assert len(names) == 24
    for name in names:
        definition = load_pipeline(name)
        assert definition.name == name
        assert definition.checkpoint
        assert definition.source
        assert definition.denoiser.parameters > 0


@pytest.mark.parametrize(
    ("given", "nearest"),
    [("sd21bse", "sd21-base"), ("SDXL", "sdxl-base"), ("flux-dev", "flux1-dev"), ("zzzz", "--list")],
)
def test_unknown_names_get_the_nearest(given, nearest):
    with pytest.raises(PipelineError, match=nearest):
        load_pipeline(given)


def test_prompt_lengths():
    clip = TextEncoder("transformers.CLIPTextModel", {}, tokens=77, context_tokens=77)
    assert clip.lengths(None) == clip.lengths(20) == (77, 77, 77)
    # Qwen-Image: 34 tokens of the template are encoded and dropped.
    (qwen,) = load_pipeline("qwen-image").text_encoders
    assert qwen.lengths(None) == (64, 30, 30)
    assert qwen.lengths(100) == (134, 100, 100)
    # CogView4 pads to a multiple of 16.
    (glm,) = load_pipeline("cogview4-6b").text_encoders
    assert glm.lengths(33) == (48, 48, 48)
    # Kandinsky 3 encodes 128 padded tokens and cuts to the real ones and one more.
    (ul2,) = load_pipeline("kandinsky-3").text_encoders
    assert ul2.lengths(20) == (128, 21, 21)
    assert ul2.lengths(500) == (128, 128, 128)
    # Lumina-Image-2.0 hands on 256 padded tokens and a mask.
    (gemma,) = load_pipeline("lumina-image-2.0").text_encoders
    assert gemma.lengths(77) == (256, 256, 77)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda raw: raw.pop("vae"), "'vae' is missing"),
        (lambda raw: raw["pipeline"].update(guidance="twice"), "doubled_batch"),
        (lambda raw: raw["denoiser"].update(layers=3), "layers"),
        (lambda raw: raw["text_encoders"][0].update(padding="left"), "fixed, prompt"),
    ],
)
def test_broken_definitions_name_the_key(tmp_path, change, words):
    raw = json.loads((DEFINITIONS_DIR / "sd15.json").read_text())
    change(raw)
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(raw))
    with pytest.raises(PipelineError, match=words) as caught:
        read_definition(file)
    assert "mine.json" in str(caught.value)


def test_no_json(tmp_path):
    file = tmp_path / "mine.json"
    file.write_text("{")
    with pytest.raises(PipelineError, match="JSON"):
        read_definition(file)

"""Images from local pipelines with their cost, and what happens when a model fails."""

import json

import pytest

from tests.conftest import run_command
from tests.tiny_pipelines import SIDE

pytest.importorskip("diffusers")
SETTINGS = {"height": SIDE, "width": SIDE, "num_inference_steps": 2, "guidance_scale": 7.5}


@pytest.fixture(scope="module")
def functions():
    from swinmr_profiling.scripts import generate_image

    return generate_image


def test_one_image(functions, tiny_pipeline_folders, tmp_path):
    from PIL import Image

    image, file, seed, profile = functions.generate_image(
        str(tiny_pipeline_folders["unet"]), "a cat", seed=7, output_dir=tmp_path, **SETTINGS
    )
    assert (image.size, seed) == ((SIDE, SIDE), 7)
    assert file == str(tmp_path / "unet_seed7.png")
    assert list(Image.open(file).getdata()) == list(image.getdata())
    # PNDM: 3 calls for 2 steps.
    assert (profile["enabled"], profile["denoiser_calls"]) == (True, 3)
    assert profile["inference_time_seconds"] > 0
    again, _, _, nothing = functions.generate_image(
        str(tiny_pipeline_folders["unet"]),
        "a cat",
        seed=7,
        output_dir=tmp_path,
        enable_profiling=False,
        **SETTINGS,
    )
    # The same seed gives the same image, watched or not.
    assert list(again.getdata()) == list(image.getdata())
    assert nothing is None


def test_a_random_seed_is_reported(functions, tiny_pipeline_folders, tmp_path):
    _, file, seed, _ = functions.generate_image(
        str(tiny_pipeline_folders["unet"]), "a cat", output_dir=tmp_path, enable_profiling=False, **SETTINGS
    )
    assert file.endswith(f"_seed{seed}.png")


def test_a_failing_model_does_not_stop_the_rest(functions, tiny_pipeline_folders, tmp_path, capsys):
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "model_index.json").write_text("{}")
    models = [
        str(tiny_pipeline_folders["unet"]),
        str(broken),
        "some/name",
        str(tiny_pipeline_folders["transformer"]),
    ]
    results = functions.generate_images_sequential(
        models, "a cat", output_dir=tmp_path / "out", seed=1, **SETTINGS
    )
    assert [result["status"] for result in results] == ["done", "failed", "failed", "done"]
    assert results[1]["image"] is None
    config = json.loads((tmp_path / "out" / "generation_config.json").read_text())
    assert config["prompt"] == "a cat"
    assert config["settings"]["num_inference_steps"] == 2
    assert [model["status"] for model in config["models"]] == ["done", "failed", "failed", "done"]
    assert "--allow-download" in config["models"][2]["error"]
    assert config["models"][3]["compute_profile"]["model_component"] == "transformer"
    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 2


def test_command(tiny_pipeline_folders, tmp_path):
    run = run_command(
        *(
            "scripts/generate_image.py",
            "--models",
            tiny_pipeline_folders["unet"],
            "nowhere",
            "--prompt",
            "a cat",
        ),
        *("--height", SIDE, "--width", SIDE, "--steps", "2", "--seed", "3"),
        cwd=tmp_path,
    )
    assert run.returncode == 4, run.stderr
    for words in (
        "Compute profile of unet:",
        "MACs/step:",
        "2 (3 denoiser calls)",
        "unet_seed3.png (seed 3)",
    ):
        assert words in run.stdout, run.stdout
    (config,) = tmp_path.glob("outputs/*/generation_config.json")
    assert len(json.loads(config.read_text())["models"]) == 2
    assert len(list(config.parent.glob("*.png"))) == 1


def test_command_without_profiling(functions, tiny_pipeline_folders, tmp_path, capsys):
    status = functions.main(
        [
            *("--model", str(tiny_pipeline_folders["transformer"]), "--prompt", "a cat", "--no-profiling"),
            *("--height", str(SIDE), "--width", str(SIDE), "--steps", "1", "--output-dir", str(tmp_path)),
        ]
    )
    captured = capsys.readouterr()
    assert status == 0, captured.err
    assert "Compute profile" not in captured.out
    assert len(list(tmp_path.glob("transformer_seed*.png"))) == 1


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--model", "stabilityai/no-such-model", "--prompt", "a cat"], "is no local folder"),
        (["--prompt", "a cat"], "--model"),
        (["--model", "x"], "--prompt"),
        (["--model", "x", "--prompt", "a", "--steps", "0"], "--steps"),
    ],
)
def test_bad_input_is_one_line(functions, tmp_path, monkeypatch, capsys, arguments, word):
    monkeypatch.chdir(tmp_path)
    try:
        status = functions.main(arguments)
    except SystemExit as exit_request:
        status = exit_request.code
    assert status == 2
    error = capsys.readouterr().err
    errors = [line for line in error.splitlines() if "error: " in line]
    assert len(errors) == 1, error
    assert word in errors[0]


def test_a_side_that_the_pipeline_refuses(functions, tiny_pipeline_folders, tmp_path):
    from swinmr_profiling.profiler.pipelines.errors import PipelineError

    with pytest.raises(PipelineError, match="refuses"):
        functions.generate_image(
            str(tiny_pipeline_folders["unet"]),
            "a cat",
            output_dir=tmp_path,
            **{**SETTINGS, "height": SIDE + 1},
        )

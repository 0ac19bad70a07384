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
    # Seconds come from a second run, which is asked for.
    assert profile["inference_time_seconds"] is None
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


@pytest.mark.slow
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
        (["--model", "stabilityai/no-such-model", "--prompt", "a cat"], "is not a local folder"),
        (["--prompt", "a cat"], "--model"),
        (["--model", "x"], "--prompt"),
        (["--model", "x", "--prompt", "a", "--steps", "0"], "--steps"),
        (["--model", "x", "--prompt", "a", "--seed", "-2"], "--seed"),
        (["--model", "x", "--prompt", "a", "--output-dir", "/dev/null/images"], "/dev/null"),
        (["--model", "x", "--prompt", "a", "--output-dir", "/proc/images"], "/proc/images"),
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


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("index", "files", "named"),
    [
        ({"_class_name": ["my_pipeline", "Mine"]}, ["my_pipeline.py"], "_class_name"),
        ({"_class_name": "Mine", "unet": ["my_unet", "Net"]}, ["unet/my_unet.py"], "unet/my_unet.py"),
        ({"_class_name": "Mine", "unet": ["my_unet", "Net"]}, ["my_unet.py"], "my_unet.py"),
        ({"_class_name": "Mine", "unet": ["my_unet", "Net"]}, ["my_unet/__init__.py"], "my_unet/__init__.py"),
        ({"_class_name": "Mine", "unet": ["../elsewhere/my_unet", "Net"]}, [], "../elsewhere/my_unet"),
        ({"_class_name": "Mine", "unet": ["os.path", "join"]}, [], "os.path"),
        ({"_class_name": "Mine", "custom_pipeline": "pipeline.py"}, ["pipeline.py"], "custom_pipeline"),
    ],
)
@pytest.mark.parametrize("command", ["generate", "measure"])
def test_a_folder_that_names_code_is_refused_before_anything_of_it_runs(
    tmp_path, index, files, named, command
):
    """By what the folder says, not by the release of diffusers that would load it."""
    from swinmr_profiling.profiler.pipelines.errors import PipelineError
    from swinmr_profiling.profiler.pipelines.live.generation import GenerationSettings, load_pipeline_object

    (tmp_path / "model_index.json").write_text(json.dumps(index))
    for name in files:
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"open({str(tmp_path / 'it_ran')!r}, 'w')\n")
    if command == "generate":
        with pytest.raises(PipelineError, match="names code") as refused:
            load_pipeline_object(str(tmp_path), GenerationSettings("", device="cpu"))
        assert named in str(refused.value)
    else:
        (tmp_path / "scheduler").mkdir()
        run = run_command(
            "scripts/profile_pipeline.py",
            "--pipeline-dir",
            tmp_path,
            "--measure",
            "--output",
            "p.json",
            cwd=tmp_path,
        )
        assert run.returncode == 2
        assert len(run.stderr.splitlines()) == 1
    assert not (tmp_path / "it_ran").exists()


@pytest.mark.parametrize("text", ["[]", "{", "[" * 100_000])
def test_an_index_that_is_none_is_one_line(tmp_path, text):
    from swinmr_profiling.profiler.pipelines.defined.folder import index_without_code
    from swinmr_profiling.profiler.pipelines.errors import PipelineError

    (tmp_path / "model_index.json").write_text(text)
    with pytest.raises(PipelineError, match=r"model_index\.json") as refused:
        index_without_code(tmp_path)
    assert "\n" not in str(refused.value)


def test_what_is_fetched_is_looked_at_before_it_is_loaded(tmp_path, monkeypatch):
    diffusers = pytest.importorskip("diffusers")
    from swinmr_profiling.profiler.pipelines.errors import PipelineError
    from swinmr_profiling.profiler.pipelines.live.generation import GenerationSettings, load_pipeline_object

    (tmp_path / "model_index.json").write_text(json.dumps({"_class_name": ["my_pipeline", "Mine"]}))
    monkeypatch.setattr(diffusers.DiffusionPipeline, "download", lambda *_, **__: str(tmp_path))
    monkeypatch.setattr(
        diffusers.DiffusionPipeline, "from_pretrained", lambda *_, **__: pytest.fail("loaded")
    )
    with pytest.raises(PipelineError, match="names code"):
        load_pipeline_object("somebody/model", GenerationSettings("", device="cpu", allow_download=True))


def test_two_models_of_one_name_write_two_images():
    from swinmr_profiling.profiler.pipelines.live.generation import _file_names

    names = _file_names(["a/sd15", "b/sd15", "a/sd15", "c/other"])
    assert names == {"a/sd15": "sd15", "b/sd15": "sd15_2", "c/other": "other"}


def run_one(functions, folder, tmp_path, *options):
    """The exit status of the command for one model of a folder, and its entries of the list of images."""
    sizes = ("--height", str(SIDE), "--width", str(SIDE), "--steps", "2", "--device", "cpu")
    out = tmp_path / "out"
    status = functions.main(
        ["--model", str(folder), "--prompt", "a cat", *sizes, "--output-dir", str(out), *options]
    )
    return status, json.loads((out / "generation_config.json").read_text())["models"]


@pytest.mark.slow
def test_a_scheduler_a_count_and_seconds(functions, tiny_pipeline_folders, tmp_path, capsys):
    status, entries = run_one(
        *(functions, tiny_pipeline_folders["unet"], tmp_path, "--scheduler", "Heun", "--count", "2"),
        *("--seed", "5", "--time"),
    )
    assert status == 0
    assert [entry["seed"] for entry in entries] == [5, 6]
    assert len({entry["image_path"] for entry in entries}) == 2
    profile = entries[0]["compute_profile"]
    # Heun: two calls a step but one for the last.
    assert (profile["scheduler"], profile["denoiser_calls"]) == ("HeunDiscreteScheduler", 3)
    assert profile["throughput_tflops"] == pytest.approx(
        profile["total_flops"] / profile["inference_time_seconds"] / 1e12
    )
    assert "Achieved:" in capsys.readouterr().out


def test_a_seed_of_minus_one_is_a_random_one(functions, tiny_pipeline_folders, tmp_path, monkeypatch):
    from swinmr_profiling.profiler.pipelines.live import generation

    monkeypatch.setattr(generation.secrets, "randbelow", lambda limit: limit - 1)
    _, entries = run_one(functions, tiny_pipeline_folders["unet"], tmp_path, "--seed", "-1", "--no-profiling")
    assert entries[0]["seed"] == 2**32 - 1


def never(*_, **__):
    pytest.fail("computed")


def test_an_image_where_none_is_taken_is_refused_before_anything_is_computed(
    functions, tiny_pipeline_folders, tmp_path, monkeypatch, capsys
):
    from diffusers import StableDiffusionPipeline

    monkeypatch.setattr(StableDiffusionPipeline, "encode_prompt", never)
    status, entries = run_one(functions, tiny_pipeline_folders["unet"], tmp_path, "--image", "x.png")
    assert status == 2
    assert entries[0]["error"] == "StableDiffusionPipeline takes no image: leave --image away"


@pytest.fixture(scope="module")
def image_to_image(tmp_path_factory, tiny_pipeline_folders):
    from diffusers import StableDiffusionImg2ImgPipeline

    folder = tmp_path_factory.mktemp("pipelines") / "img2img"
    parts = {"requires_safety_checker": False, "safety_checker": None, "feature_extractor": None}
    StableDiffusionImg2ImgPipeline.from_pretrained(tiny_pipeline_folders["unet"], **parts).save_pretrained(
        folder
    )
    return folder


@pytest.mark.slow
def test_image_to_image(functions, image_to_image, tmp_path, capsys):
    from PIL import Image

    # It has no size of its own: the image's. Two of three steps are run at its strength of 0.8.
    Image.new("RGB", (SIDE, SIDE), (9, 99, 199)).save(tmp_path / "start.png")
    status, entries = run_one(
        functions, image_to_image, tmp_path, "--image", str(tmp_path / "start.png"), "--steps", "3"
    )
    assert status == 0, capsys.readouterr().err
    assert entries[0]["compute_profile"]["denoiser_calls"] > 0
    assert Image.open(entries[0]["image_path"]).size == (SIDE, SIDE)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ((), "starts from an image: give one with --image"),
        (("--image", "nowhere.png"), "image nowhere.png: "),
    ],
)
def test_image_to_image_without_one(functions, image_to_image, tmp_path, monkeypatch, options, word):
    from diffusers import StableDiffusionImg2ImgPipeline

    monkeypatch.setattr(StableDiffusionImg2ImgPipeline, "encode_prompt", never)
    status, entries = run_one(functions, image_to_image, tmp_path, *options)
    assert status == 2
    assert word in entries[0]["error"]


def tiny_folder(name, folder):
    from tests.profiler.pipelines.watched_pipelines import tiny

    tiny(name).save_pretrained(folder / name)
    return folder / name


@pytest.mark.slow
def test_a_video_is_saved_as_one(functions, tmp_path, capsys):
    from PIL import Image

    folder = tiny_folder("TextToVideoSDPipeline", tmp_path)
    status, entries = run_one(functions, folder, tmp_path, "--height", "64", "--width", "64")
    assert status == 0, capsys.readouterr().err
    video = Image.open(entries[0]["image_path"])
    assert (video.format, video.is_animated, video.size) == ("GIF", True, (64, 64))
    assert entries[0]["compute_profile"]["model_component"] == "unet"


@pytest.mark.slow
def test_what_gives_sound_is_refused_before_anything_is_computed(functions, tmp_path, monkeypatch):
    import diffusers

    folder = tiny_folder("StableAudioPipeline", tmp_path)
    monkeypatch.setattr(diffusers.StableAudioPipeline, "encode_prompt", never)
    status, entries = run_one(functions, folder, tmp_path)
    assert status == 2
    assert "StableAudioPipeline gives no image and no video but audios" in entries[0]["error"]


@pytest.mark.parametrize(("guidance_embeds", "steps"), [(False, 4), (True, None)])
def test_a_checkpoint_s_own_steps(guidance_embeds, steps):
    """FLUX.1-schnell's 4 steps stand nowhere in its files: it is told by its denoiser, which embeds no guidance."""
    from types import SimpleNamespace

    from swinmr_profiling.profiler.pipelines.live.call_arguments import call_arguments
    from swinmr_profiling.profiler.pipelines.live.loaded_pipeline import GenerationSettings

    class FluxPipeline:
        transformer = SimpleNamespace(config={"guidance_embeds": guidance_embeds})

        def __call__(self, prompt=None, num_inference_steps=28, guidance_scale=3.5, generator=None):
            raise AssertionError

    arguments = call_arguments(FluxPipeline(), GenerationSettings("a cat"), 0)
    assert arguments.get("num_inference_steps") == steps
    assert arguments.get("guidance_scale") == (0.0 if steps else None)
    chosen = call_arguments(FluxPipeline(), GenerationSettings("a cat", num_inference_steps=9), 0)
    assert chosen["num_inference_steps"] == 9

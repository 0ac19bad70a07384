"""Pipelines that no prediction was written for: the watched count is torch's own, and there is no prediction."""

import json

import pytest

from swinmr_profiling.profiler.compute import create_profiler
from tests.profiler.pipelines.watched_pipelines import part, tiny, watched

pytest.importorskip("diffusers")
SHAPE = (1, 3, 64, 64)

# Each was mispredicted, or counted and thrown away, when it was taken for one that it is not.
KINDS = [
    "StableDiffusionControlNetPipeline",
    "StableDiffusionImg2ImgPipeline",
    "StableDiffusionInpaintPipeline",
    "LatentConsistencyModelPipeline",
    "FluxKontextPipeline",
    "Flux2KleinPipeline",
    "WanPipeline",
    "CogVideoXPipeline",
    "ZImagePipeline",
]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", KINDS)
def test_what_is_not_predicted_is_counted(name):
    pipe = tiny(name)
    profile = watched(pipe)
    assert profile["predicted_total_macs"] is None
    prediction = profile["prediction"]
    assert (prediction["enabled"], prediction["total_macs"]) == (False, None)
    assert f"no prediction is written for {name}: watch a run" in prediction["reason"]
    unwatched = create_profiler().profile_pipeline(pipe, SHAPE, 2)
    assert unwatched["enabled"] is False
    assert f"no prediction is written for {name}" in unwatched["reason"]
    assert profile["denoiser_calls"] >= profile["denoiser_steps"] > 0


@pytest.mark.slow
def test_a_controlnet_is_a_network_of_its_own():
    profile = watched(tiny("StableDiffusionControlNetPipeline"))
    assert part(profile, "controlnet")["calls"] == part(profile, "unet")["calls"] > 0
    assert part(profile, "controlnet")["macs"] > 0


@pytest.mark.slow
def test_a_pipeline_with_networks_that_the_prediction_leaves_out_says_so():
    import diffusers

    from swinmr_profiling.scripts.tiny_pipelines.pipeline_components import encoder

    pipe = tiny("StableDiffusionPipeline")
    pipe.register_modules(image_encoder=encoder("CLIPVisionModelWithProjection"))
    profile = create_profiler().profile_pipeline(pipe, SHAPE, 2)
    assert profile["not_costed"] == ["image_encoder"]
    assert any("not costed: image_encoder" in note for note in profile["notes"])
    beside = watched(pipe)
    assert beside["prediction"]["not_costed"] == beside["never_called"] == ["image_encoder"]
    assert isinstance(pipe, diffusers.StableDiffusionPipeline)


@pytest.mark.slow
def test_a_subclass_that_runs_as_its_parent_is_predicted_and_one_that_does_not_is_refused():
    pipe = tiny("StableDiffusionPipeline")
    total = create_profiler().profile_pipeline(pipe, SHAPE, 2)["total_macs"]
    kind = type(pipe)
    pipe.__class__ = type("Mine", (kind,), {})
    assert create_profiler().profile_pipeline(pipe, SHAPE, 2)["total_macs"] == total
    pipe.__class__ = type("Another", (kind,), {"__call__": lambda self: None})
    assert (
        "no prediction is written for Another" in create_profiler().profile_pipeline(pipe, SHAPE, 2)["reason"]
    )


def test_code_of_the_user_s_own_is_called_by_the_run_alone():
    pipe = tiny("StableDiffusionPipeline")
    calls = {"forward": 0, "hook": 0}
    kind = type(pipe.text_encoder)

    class Mine(kind):
        def forward(self, *args, **kwargs):
            calls["forward"] += 1
            return super().forward(*args, **kwargs)

    pipe.text_encoder.__class__ = Mine
    profile = watched(pipe)
    assert calls["forward"] == part(profile, "text_encoder")["calls"] == 2
    assert "text_encoder (Mine) has code of your own" in profile["prediction"]["reason"]
    pipe.text_encoder.__class__ = kind
    pipe.vae.decoder.register_forward_hook(lambda *_: calls.update(hook=calls["hook"] + 1))
    profile = watched(pipe)
    assert calls["hook"] == 1
    assert "vae.decoder (Decoder) has code of your own" in profile["prediction"]["reason"]


@pytest.mark.slow
def test_a_unet_that_was_distilled_with_its_guidance_runs_once_a_step():
    import diffusers

    from swinmr_profiling.scripts.tiny_pipelines.pipeline_calls import components_of

    components = components_of(diffusers.LatentConsistencyModelPipeline)
    pipe = diffusers.StableDiffusionPipeline(**{**components, "scheduler": diffusers.LCMScheduler()})
    pipe.set_progress_bar_config(disable=True)
    profile = watched(
        pipe, SHAPE, prompt="a cat", height=64, width=64, num_inference_steps=2, guidance_scale=7.5
    )
    # The prompt is embedded twice where guidance is asked for; the prediction leaves that to the UNet.
    assert part(profile, "unet")["calls"] == 2
    one = create_profiler()
    assert one.measure_unet_macs(pipe, 64, 64, guidance_scale=7.5) * 2 == part(profile, "unet")["macs"]


def command(arguments):
    from swinmr_profiling.scripts import profile_pipeline

    return profile_pipeline.main(arguments)


@pytest.fixture(scope="module")
def wan_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pipelines") / "tiny_wan"
    tiny("WanPipeline").save_pretrained(folder)
    return folder


def test_a_folder_that_is_not_predicted_is_one_line(wan_folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert command(["--pipeline-dir", str(wan_folder), "--height", "64", "--steps", "2"]) == 2
    errors = capsys.readouterr().err.splitlines()
    (error,) = (line for line in errors if line.startswith("error: "))
    assert "no prediction is written for WanPipeline: --measure runs it" in error
    assert [file for file in tmp_path.rglob("*") if file.is_file()] == []


def test_a_folder_that_is_not_predicted_is_measured(wan_folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    options = ["--height", "64", "--steps", "2", "--precision", "fp32", "--output", "wan.json"]
    assert command(["--pipeline-dir", str(wan_folder), *options, "--measure"]) == 0
    printed = capsys.readouterr().out
    (record,) = json.loads((tmp_path / "wan.json").read_text())["pipelines"]
    measured = record["measured"]
    assert (record["enabled"], record["source"], record["pipeline"]) == (True, "measured", "tiny_wan")
    assert "no prediction is written" in record["reason"]
    assert measured["throughput_tflops"] == pytest.approx(
        measured["total_flops"] / measured["inference_time_seconds"] / 1e12
    )
    assert measured["cuda_peak_allocated_bytes"] is None or measured["device"].startswith("cuda")
    for words in (
        "Measured, one run counted",
        "TFLOP/s",
        "Time:",
        "transformer:",
        "operators",
        "no prediction:",
    ):
        assert words in printed, printed


@pytest.mark.slow
def test_a_controlnet_folder_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    tiny("StableDiffusionControlNetPipeline").save_pretrained(tmp_path / "control")
    assert command(["--pipeline-dir", str(tmp_path / "control"), "--height", "64"]) == 2
    assert "no prediction is written for StableDiffusionControlNetPipeline" in capsys.readouterr().err


@pytest.mark.slow
def test_measure_prints_what_it_measured(tiny_pipeline_folders, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    options = ["--height", "16", "--steps", "2", "--guidance-scale", "7.5", "--precision", "fp32"]
    assert command(["--pipeline-dir", str(tiny_pipeline_folders["unet"]), *options, "--measure"]) == 0
    printed = capsys.readouterr().out
    (record,) = json.loads((tmp_path / "results/pipeline_results.json").read_text())["pipelines"]
    # What was predicted and what ran are one figure.
    assert record["measured"]["total_macs"] == record["total_macs"]
    assert record["measured"]["prediction"]["total_macs"] == record["total_macs"]
    assert record["measured"]["inference_time_seconds"] > 0
    assert "TFLOP/s" in printed
    assert f"Time:          {record['measured']['inference_time_str']}" in printed

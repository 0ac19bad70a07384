"""The command that costs pipelines, run as a user runs it."""

import csv
import json
import os
import re
import shutil
import subprocess

import pytest

from tests.conftest import REPOSITORY, run_command
from tests.tiny_pipelines import SIDE

pytest.importorskip("diffusers")
PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def profile_pipeline(tmp_path, monkeypatch, capsys):
    """The command's main in this process: importing torch and diffusers anew takes longer than most runs."""
    from swinmr_profiling.scripts.profile_pipeline import main

    def run(*arguments):
        monkeypatch.chdir(tmp_path)
        capsys.readouterr()
        try:
            status = main([str(argument) for argument in arguments])
        except SystemExit as exit_request:
            status = exit_request.code
        captured = capsys.readouterr()
        return subprocess.CompletedProcess(arguments, status, captured.out, captured.err)

    return run


def refused(run, *words):
    assert run.returncode == 2, (run.returncode, run.stdout, run.stderr)
    errors = [line for line in run.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, run.stderr
    assert "Traceback" not in run.stderr
    for word in words:
        assert word in errors[0], errors[0]


def test_one_pipeline_with_all_files(profile_pipeline, tmp_path):
    run = profile_pipeline(
        *("--pipeline", "sd21-base", "--height", "512", "--width", "512", "--steps", "30"),
        *("--guidance-scale", "7.5", "--csv", "out.csv", "--chart", "out.png", "--output", "out.json"),
    )
    assert run.returncode == 0, run.stderr
    # 2 x 402.13 GMACs a step, 31 calls; with 2 x 22.56 and 1257.26: 26.23 TMACs.
    for words in (
        "402.13 GMACs without guidance, 804.26 GMACs with",
        "26.23 TMACs = 52.47 TFLOPs",
        "31 denoiser calls",
    ):
        assert words in run.stdout, run.stdout
    # What docs/pipelines.md shows of the same command.
    page = (REPOSITORY / "docs/pipelines.md").read_text(encoding="utf-8")
    assert re.search(r"^```\n(=+\n.*?)^```$", page, re.MULTILINE | re.DOTALL).group(1) in run.stdout
    content = json.loads((tmp_path / "out.json").read_text())
    (record,) = content["pipelines"]
    assert record["total_macs"] == 31 * 2 * 402_128_732_160 + 2 * 22_563_616_768 + 1_257_259_466_752
    assert record["total_flops"] == 2 * record["total_macs"]
    assert record["macs_per_step_str"] == "804.26 GMACs"
    assert record["params_str"] == "865.91M"
    assert record["latent_shape"] == [1, 4, 64, 64]
    assert record["summary"]["UNet per-step (GMACs)"] == pytest.approx(804.257, abs=1e-3)
    assert sum(part["share"] for part in record["components"]) == pytest.approx(1)
    assert sum(record["by_kind"].values()) == record["total_macs"]
    with (tmp_path / "out.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert [row["name"] for row in rows] == ["unet", "openclip_h", "vae_decode"]
    assert sum(int(row["macs"]) for row in rows) == record["total_macs"]
    assert (tmp_path / "out.png").read_bytes().startswith(PNG_SIGNATURE)
    assert "Chart saved to: out.png" in run.stdout
    assert "Table saved to: out.csv" in run.stdout


@pytest.mark.slow
def test_comparison_goes_on_when_one_fails(profile_pipeline):
    run = profile_pipeline(
        *("--pipelines", "sd15", "flux1-schnell", "--height", "64", "--scheduler", "DDIM", "--steps", "4"),
        *("--output", "-"),
    )
    assert run.returncode == 4, run.stderr
    good, bad = json.loads(run.stdout)["pipelines"]
    assert (good["enabled"], good["scheduler"], good["denoiser_calls"]) == (True, "DDIMScheduler", 4)
    assert bad["enabled"] is False
    assert "flow matching" in bad["reason"]
    assert "flux1-schnell" in run.stderr


def test_nothing_costed_leaves_earlier_files(profile_pipeline, tmp_path):
    files = {name: f"an earlier {name}" for name in ("out.csv", "out.png")}
    files["out.json"] = json.dumps({"pipelines": [{"pipeline": "sd15", "enabled": True}]})
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    arguments = ("--pipelines", "flux1-dev", "flux1-schnell", "--height", "64", "--scheduler", "DDIM")
    outputs = ("--output", "out.json", "--csv", "out.csv", "--chart", "out.png")
    run = profile_pipeline(*arguments, *outputs)
    assert run.returncode == 2
    assert "none of the 2 pipelines could be costed" in run.stderr
    assert "out.json stays as it was" in run.stderr
    assert "saved" not in run.stdout
    assert {name: (tmp_path / name).read_text() for name in files} == files
    # Where there is nothing, the reasons are written.
    (tmp_path / "out.json").unlink()
    assert profile_pipeline(*arguments, "--output", "out.json").returncode == 2
    assert [p["enabled"] for p in json.loads((tmp_path / "out.json").read_text())["pipelines"]] == [False] * 2


def test_list(profile_pipeline):
    run = profile_pipeline("--list")
    assert run.returncode == 0
    assert len(run.stdout.splitlines()) == 24
    assert "sd21-base" in run.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--pipeline", "sd21bse"], ["sd21-base"]),
        (["--pipeline", "sd15", "--height", "500"], ["500", "496 or 504"]),
        (["--pipeline", "sd15", "--steps", "0"], ["--steps"]),
        (["--pipeline", "sd15", "--guidance-scale", "0.5"], ["at least 1"]),
        (["--pipeline", "sd15", "--scheduler", "DDIN"], ["DDIM"]),
        (["--pipeline", "sd15", "--measure"], ["--pipeline-dir"]),
        (["--pipeline-dir", "nowhere"], ["nowhere", "no such folder"]),
        ([], ["--pipeline"]),
    ],
)
def test_bad_input(profile_pipeline, arguments, words):
    refused(profile_pipeline(*arguments), *words)


@pytest.mark.slow
def test_missing_libraries_name_the_extra(tmp_path):
    (tmp_path / "diffusers").mkdir()
    (tmp_path / "diffusers" / "__init__.py").write_text("raise ImportError('not here')")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    run = run_command("scripts/profile_pipeline.py", "--pipeline", "sd15", cwd=tmp_path, env=environment)
    refused(run, "diffusers", 'pip install ".[diffusion]"')


@pytest.mark.slow
def test_folder(profile_pipeline, tiny_pipeline_folders, tmp_path):
    folder = tiny_pipeline_folders["unet"]
    copied = tmp_path / "no_weights"
    # The weights are not needed: without them the costs are the same.
    shutil.copytree(folder, copied, ignore=shutil.ignore_patterns("*.safetensors", "*.bin"))
    options = ("--height", SIDE, "--steps", "4", "--guidance-scale", "7.5", "--output", "-")
    run = profile_pipeline("--pipeline-dir", copied, *options)
    assert run.returncode == 0, run.stderr
    (record,) = json.loads(run.stdout)["pipelines"]
    assert (record["denoiser_calls"], record["latent_shape"]) == (5, [1, 4, SIDE // 2, SIDE // 2])
    measured = profile_pipeline("--pipeline-dir", folder, *options, "--precision", "fp32", "--measure")
    assert measured.returncode == 0, measured.stderr
    (live,) = json.loads(measured.stdout)["pipelines"]
    assert live["measured"]["total_macs"] == record["total_macs"]
    assert live["measured"]["inference_time_seconds"] > 0


@pytest.mark.slow
def test_folder_of_a_transformer(profile_pipeline, tiny_pipeline_folders):
    run = profile_pipeline(
        *(
            "--pipeline-dir",
            tiny_pipeline_folders["transformer"],
            "--height",
            SIDE,
            "--steps",
            "3",
            "--output",
            "-",
        )
    )
    assert run.returncode == 0, run.stderr
    (record,) = json.loads(run.stdout)["pipelines"]
    assert record["model_component"] == "transformer"
    assert [part["name"] for part in record["components"]][:3] == [
        "transformer",
        "text_encoder",
        "text_encoder_2",
    ]


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (lambda folder: shutil.rmtree(folder / "unet"), ["component unet", "missing"]),
        (lambda folder: shutil.rmtree(folder / "scheduler"), ["component scheduler", "missing"]),
        (lambda folder: (folder / "vae" / "config.json").write_text("{"), ["vae", "JSON"]),
        (lambda folder: (folder / "model_index.json").unlink(), ["model_index.json"]),
        (
            lambda folder: change(folder / "vae" / "config.json", block_out_channels=[32]),
            ["AutoencoderKL", "built"],
        ),
        (lambda folder: change(folder / "model_index.json", unet=[None, None]), ["no denoiser"]),
    ],
)
def test_broken_folders(profile_pipeline, tiny_pipeline_folders, tmp_path, broken, words):
    copied = tmp_path / "copied"
    shutil.copytree(tiny_pipeline_folders["unet"], copied, ignore=shutil.ignore_patterns("*.safetensors"))
    broken(copied)
    refused(profile_pipeline("--pipeline-dir", copied, "--height", SIDE), *words)


def change(file, **values):
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))

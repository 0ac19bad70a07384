"""Every mistake a user can make ends in one clear line and the documented exit code."""

import json

import pytest
import torch

NEEDS_NO_CUDA = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")


def refused(run, *words, code=2):
    """Holds a refusal against the rules: the code, one line of error, no traceback, nothing on stdout."""
    assert run.returncode == code, (run.returncode, run.stdout, run.stderr)
    errors = [line for line in run.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, run.stderr
    assert "Traceback" not in run.stderr
    for word in words:
        assert word in errors[0], errors[0]
    return errors[0]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", ["empty"]),
        (b"\xff\xfe{\x00}\x00", ["UTF-8"]),
        (b'{"model": {"net_type": "swinir"', ["line 1"]),
        (b"[1, 2]", ["object"]),
        (b'{"model": {"net_type": "swinir", "embed_dims": 60}}', ["model.embed_dims", "embed_dim"]),
        (b'{"model": {"net_type": "swinir", "embed_dim": "60"}}', ["model.embed_dim", "whole number"]),
        (b'{"model": ' * 5000 + b"1" + b"}" * 5000, ["nested"]),
        (b'{"model": {"net_type": "swinir", "depths": [6, 6]}}', ["depths", "num_heads"]),
        (b'{"model": {"net_type": "resnet"}}', ["net_type", "swinir"]),
    ],
)
def test_broken_configs(profile_model, tmp_path, content, words):
    file = tmp_path / "broken.json"
    file.write_bytes(content)
    line = refused(profile_model("--config", file), "broken.json")
    assert all(word in line for word in words), line


def test_indivisible_width_names_the_way_out(profile_model, tiny_config):
    config = tiny_config(model={"embed_dim": 128, "num_heads": [6]})
    line = refused(profile_model("--config", config), "embed_dim 128 is not divisible by 6 heads")
    assert "126 or 132" in line
    assert "4 or 8" in line


def test_all_errors_of_a_file_at_once(profile_model, tiny_config):
    config = tiny_config(model={"window": 8}, data={"batch_size": 0, "patchsize": 32})
    run = profile_model("--config", config)
    assert run.returncode == 2
    for words in ("model.window", "data.batch_size", "data.patchsize"):
        assert words in run.stderr


def test_config_of_50_megabytes_is_not_read(profile_model, tmp_path):
    file = tmp_path / "huge.json"
    with file.open("wb") as stream:
        stream.truncate(50 * 2**20)
    refused(profile_model("--config", file), "huge.json", "MiB")


@pytest.mark.slow
def test_missing_config(profile_model, tmp_path):
    refused(profile_model("--config", tmp_path / "none.json"), "none.json")
    refused(profile_model("--config", tmp_path), str(tmp_path))
    refused(profile_model(), "--config")


def test_unreadable_config(profile_model):
    # A file whose reading fails for everybody, root included.
    refused(profile_model("--config", "/proc/self/mem"), "/proc/self/mem", "Input/output error")


@pytest.mark.slow
def test_unknown_keys_allowed_on_request(profile_model, tiny_config, tmp_path, read_profile):
    config = tiny_config(model={"embed_dims": 60})
    arguments = (
        "--config",
        config,
        "--batch-sizes",
        "1",
        "--num-runs",
        "1",
        "--output",
        "p.json",
        "--cross-check",
        "off",
    )
    refused(profile_model(*arguments), "model.embed_dims")
    run = profile_model(*arguments, "--allow-unknown")
    assert run.returncode == 0, run.stderr
    assert "model.embed_dims" in run.stderr
    assert read_profile(tmp_path / "p.json")["status"] == "complete"


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ("0", "0 in '0'"),
        ("-1", "-1"),
        ("1,,2", "an empty entry"),
        ("a", "'a'"),
        ("1,1", "twice"),
        ("1000000", "65535"),
        ("", "an empty entry"),
        ("1.5", "'1.5'"),
        ("3000000000", "65535"),
    ],
)
def test_batch_sizes(profile_model, tiny_config, sizes, words):
    refused(profile_model("--config", tiny_config(), f"--batch-sizes={sizes}"), "--batch-sizes", words)


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    "arguments",
    [
        ["--num-runs", "0"],
        ["--warmup", "-1"],
        ["--time-budget", "0"],
        ["--time-budget", "nan"],
        ["--timeout", "x"],
        ["--image-size", "0"],
        ["--image-size", "256x"],
        ["--device", "tpu"],
        ["--device", "cuda:x"],
        ["--precision", "int8"],
        ["--threads", "0"],
        ["--seed", "-3"],
        ["--no-such-option"],
    ],
)
def test_other_arguments(profile_model, tiny_config, arguments):
    refused(profile_model("--config", tiny_config(), *arguments), arguments[0])


def test_image_size_that_the_network_refuses(profile_model, tiny_config):
    refused(profile_model("--config", tiny_config(), "--image-size", "4"), "window")


@NEEDS_NO_CUDA
@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
def test_only_auto_falls_back(profile_model, tiny_config, device):
    refused(
        profile_model("--config", tiny_config(), "--device", device), f"--device {device}", "--device cpu"
    )


@pytest.mark.slow
@NEEDS_NO_CUDA
def test_auto_falls_back_to_the_cpu(profile_model, tiny_config, tmp_path, read_profile):
    run = profile_model(
        "--config", tiny_config(), "--batch-sizes", "1", "--num-runs", "1", "--cross-check", "off"
    )
    assert run.returncode == 0, run.stderr
    assert read_profile(tmp_path / "results/profile_results.json")["config"]["device"] == "cpu"


def test_output_is_a_folder(profile_model, tiny_config, tmp_path):
    refused(profile_model("--config", tiny_config(), "--output", tmp_path), "is a folder")


def test_output_below_a_file(profile_model, tiny_config, tmp_path):
    (tmp_path / "results").write_text("a file")
    refused(profile_model("--config", tiny_config()), "results", "cannot be written")
    assert (tmp_path / "results").read_text() == "a file"


def test_output_into_a_read_only_folder(profile_model, tiny_config):
    # /proc takes no files from anybody, root included.
    refused(profile_model("--config", tiny_config(), "--output", "/proc/profile.json"), "cannot be written")


def test_custom_network_is_not_imported_without_trust(profile_model, custom_config, tmp_path):
    config = custom_config("open('it_ran', 'w')", kwargs={"width": 8})
    refused(profile_model("--config", config), "own_network:Network(width=8)", "--trust-config")
    assert not (tmp_path / "it_ran").exists()


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("import no_such_module", "no_such_module"),
        ("Other = 1", "Network"),
        ("def Network(): return 3", "int"),
        ("def Network(): raise RuntimeError('no weights here')", "no weights here"),
    ],
)
def test_custom_network_that_cannot_be_built(profile_model, custom_config, source, words):
    refused(profile_model("--config", custom_config(source), "--trust-config"), "own_network:Network", words)


def test_unknown_timm_model(profile_model, tmp_path):
    config = tmp_path / "timm.json"
    config.write_text(json.dumps({"model": {"net_type": "timm", "name": "resnet_50"}}))
    refused(profile_model("--config", config), "resnet_50", "resnet50")

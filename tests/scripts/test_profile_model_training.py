"""`profile_model.py --measure-training`: the real command, its probes in their own processes, on a CPU."""

import json
import shutil
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
QUICK = ("--device", "cpu", "--num-runs", "2", "--warmup", "0", "--cross-check", "off")


@pytest.fixture
def faulty(profile_model, tmp_path):
    """Runs the command on the network that fails in training; returns the finished process and the profile."""

    def run(*options, fault=None, step=1, sizes="1,4,8"):
        shutil.copy(HERE / "faulty_training.py", tmp_path)
        model = {
            "net_type": "custom",
            "target": "faulty_training:Faulty",
            "kwargs": {"fault": fault, "step": step},
            "input_shapes": [[1, 8, 8]],
        }
        config = tmp_path / "faulty.json"
        config.write_text(json.dumps({"model": model}))
        output = tmp_path / "profile.json"
        arguments = ["--config", config, "--trust-config", "--batch-sizes", sizes, "--output", output]
        done = profile_model(*arguments, *QUICK, *options)
        return done, json.loads(output.read_text())

    return run


def test_training_beside_inference(profile_model, tiny_config, tmp_path):
    config = tiny_config(training={"accumulate": 2}, data={"patch_size": 16})
    output = tmp_path / "profile.json"
    arguments = ["--config", config, "--batch-sizes", "1,2", "--output", output, "--training-steps", "4"]
    done = profile_model(*arguments, *QUICK, "--measure-training")
    assert done.returncode == 0, done.stderr
    profile = json.loads(output.read_text())
    for size in (1, 2):
        training = profile["batch_profiling"][str(size)]["training"]
        assert (training["source"], training["steps_run"], len(training["step_ms"])) == ("measured", 4, 4)
        assert training["input_shape"] == [size, 1, 16, 16]
        assert training["validation"]["input_shape"] == [1, 1, 32, 32]
        assert "resident memory" in training["kind"]
        assert training["peak_bytes"] >= training["before_bytes"] > 0
        assert training["accumulate"] == 2
    assert "training" not in profile["single_image"]
    assert "Training at batch size: 2" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "step", "sizes", "error", "words", "code"),
    [
        ("out_of_memory", 2, "1,4,8", "OOM", "(in training: step 2 of 3)", 0),
        ("shape_error", 1, "4,8", "exception", "mat1 and mat2 shapes cannot be multiplied", 4),
        ("segmentation_fault", 3, "4", "crashed", "SIGSEGV (in training: step 3 of 3)", 4),
    ],
)
def test_a_fault_in_training_costs_its_training_alone(faulty, fault, step, sizes, error, words, code):
    done, profile = faulty("--measure-training", fault=fault, step=step, sizes=sizes)
    assert done.returncode == code, done.stderr
    blocks = profile["batch_profiling"]
    assert all("timing" in block for block in blocks.values())
    assert blocks["4"]["training"]["error"] == error
    assert words in blocks["4"]["training"]["detail"]
    if fault == "out_of_memory":
        assert blocks["1"]["training"]["steps_run"] == 3
        assert blocks["8"]["training"]["error"] == "skipped"
    elif "8" in blocks:
        assert blocks["8"]["training"]["steps_run"] == 3
    assert ("faulty_training.py" in done.stderr) == (error == "exception")
    assert profile["status"] == ("complete" if code == 0 else "partial")
    if code:
        assert profile["status_reason"] == "failed: training at batch 4"


def test_on_a_cpu_only_when_asked(faulty):
    done, profile = faulty(sizes="1")
    assert done.returncode == 0, done.stderr
    assert "training" not in profile["batch_profiling"]["1"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--training-steps", "2"], "a whole number of at least 3"),
        (["--no-training", "--measure-training"], "not allowed with argument"),
    ],
)
def test_bad_options(profile_model, tiny_config, options, words):
    done = profile_model("--config", tiny_config(), *options)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr

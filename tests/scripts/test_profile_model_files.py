"""profile_model.py --memory-snapshot and --trace: the files that PyTorch's viewer and Perfetto open."""

import gzip
import json
import pickle

import pytest

SHORT = ("--device", "cpu", "--cross-check", "off", "--num-runs", "1", "--output", "p.json")


@pytest.mark.slow
def test_both_files_of_one_run(profile_model, tiny_config, tmp_path, read_profile):
    files = ("--memory-snapshot", "step.pickle", "--trace", "pass.json.gz")
    run = profile_model("--config", tiny_config(), "--batch-sizes", "1,3", *SHORT, *files, training=True)
    assert run.returncode == 0, run.stderr
    profile = read_profile(tmp_path / "p.json")

    snapshot = pickle.loads((tmp_path / "step.pickle").read_bytes())
    live = peak = 0
    for event in snapshot["device_traces"][0]:
        live += {"alloc": event["size"], "free_completed": -event["size"]}.get(event["action"], 0)
        peak = max(peak, live)
    # To the byte what the profile says of the largest size, workspaces included.
    assert peak == profile["batch_profiling"]["3"]["training"]["peak_bytes"]
    assert snapshot["title"].startswith("PREDICTED training step of swinir, batch 3, fp32")
    assert "nothing was run" in snapshot["title"]

    with gzip.open(tmp_path / "pass.json.gz", "rt") as stream:
        text = stream.read()
    assert str(tmp_path) not in text
    names = [event.get("name") for event in json.loads(text)["traceEvents"]]
    assert names.count("forward pass, batch 3") == 1
    assert "conv_last (Conv2d)" in names
    assert "aten::convolution" in names


def test_without_a_prediction_there_is_no_snapshot(profile_model, tiny_config, tmp_path):
    given = ("--config", tiny_config(), "--no-training", *SHORT, "--memory-snapshot", "step.pickle")
    run = profile_model(*given)
    assert run.returncode == 2
    assert "--memory-snapshot: not allowed with argument --no-training" in run.stderr
    run = profile_model(
        "--config", tiny_config(), "--predict-only", *SHORT, "--trace", "t.json", training=True
    )
    assert run.returncode == 2
    assert "measures nothing" in run.stderr
    run = profile_model("--configs", tiny_config(), "--output", "d", "--trace", "t.json")
    assert run.returncode == 2
    assert "--trace names one file" in run.stderr
    assert not list(tmp_path.glob("*.pickle"))


@pytest.mark.slow
def test_a_network_that_is_not_predicted_has_no_snapshot_and_the_run_is_partial(
    profile_model, tmp_path, read_profile
):
    network = (
        "import torch\nclass Network(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.layer = torch.nn.Conv2d(1, 1, 3, padding=1)\n    def forward(self, x):\n"
        "        return self.layer(x) if x.sum() > -1e9 else x\n"
    )
    (tmp_path / "n.py").write_text(network)
    (tmp_path / "step.pickle").write_bytes(b"of an earlier run")
    given = ("--module", "n.py:Network", "--inputs", "1x1x8x8", "--trust-config", "--batch-sizes", "1")
    run = profile_model(*given, *SHORT, "--memory-snapshot", "step.pickle", training=True)
    assert run.returncode == 4
    assert "error: --memory-snapshot: the memory of training is not predicted" in run.stderr
    assert read_profile(tmp_path / "p.json")["status_reason"] == "failed: --memory-snapshot"
    assert (tmp_path / "step.pickle").read_bytes() == b"of an earlier run"

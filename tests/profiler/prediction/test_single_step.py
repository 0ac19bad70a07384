"""What validate_setup.py holds against a card's free memory is what a profile predicts."""

import pytest

from swinmr_profiling.configs import load_config
from swinmr_profiling.profiler.prediction.prediction_session import predict_single_step_bytes

ONE_RUN = ["--batch-sizes", "1", "--num-runs", "1", "--warmup", "0", "--device", "cpu", "--output", "p.json"]


@pytest.mark.slow
def test_the_predicted_step_is_that_of_the_profile(profile_model, tiny_config, tmp_path, read_profile):
    file = tiny_config(system={"mixed_precision": "bf16"})
    run = profile_model("--config", file, "--gpu", "RTX 3090", *ONE_RUN, training=True)
    assert run.returncode == 0, run.stderr
    predicted = predict_single_step_bytes(load_config(file).config, "8.6", trust_config=False, timeout_s=300)
    assert predicted == read_profile(tmp_path / "p.json")["batch_profiling"]["1"]["training"]["process_bytes"]

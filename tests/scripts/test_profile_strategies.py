"""profile_model.py --devices N --strategy: predicted for real, written, reported, and asked again from the profile."""

import json

import pytest

from tests.conftest import run_command

# As SDXL is conditioned, small.
SDXL = {
    "sample_size": 16, "in_channels": 4, "out_channels": 4, "block_out_channels": [32, 64], "layers_per_block": 1,
    "down_block_types": ["CrossAttnDownBlock2D", "DownBlock2D"], "attention_head_dim": 8, "norm_num_groups": 8,
    "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D"], "cross_attention_dim": 24,
    "addition_embed_type": "text_time", "addition_time_embed_dim": 8, "projection_class_embeddings_input_dim": 64,
}  # fmt: skip
CONFIG = {
    "experiment_name": "tiny",
    "model": {"net_type": "diffusers", "class": "UNet2DConditionModel", "config": SDXL},
    "data": {"use_patches": False},
    "training": {"ema_decay": 0.0, "loss": {"type": "mse"}},
}


@pytest.mark.slow
def test_the_table_of_strategies_from_the_config_to_the_reports(tmp_path):
    (tmp_path / "tiny.json").write_text(json.dumps(CONFIG))
    run = run_command(
        "scripts/profile_model.py", "--config", "tiny.json", "--device", "cpu", "--predict-only", "--cross-check",
        "off", "--batch-sizes", "1", "--gpu-memory", "2GiB", "--devices", "2", "--strategy", "ddp,fsdp", "--output",
        "p.json", "--report", "p.html", "--markdown", "p.md", cwd=tmp_path,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    profile = json.loads((tmp_path / "p.json").read_text())
    # 64 - 6 x 8 numbers are left for the pooled prompt; the other six are SDXL's sizes.
    [derived] = [one["message"] for one in profile["warnings"] if one["code"] == "inputs_derived"]
    assert (
        "encoder_hidden_states [77, 24], added_cond_kwargs.text_embeds [16], added_cond_kwargs.time_ids [6]"
        in derived
    )
    assert any(
        "added_cond_kwargs.text_embeds [16]" in text for text in profile["memory_model"]["assumptions"]
    )
    ddp, fsdp = profile["strategies"]
    assert (ddp["strategy"], fsdp["strategy"], ddp["devices"]) == ("ddp", "fsdp", 2)
    [entry] = profile["recommendation"]["training"]
    # What is recommended is the traced DDP, not an addition to the prediction for one GPU.
    assert entry["needed_bytes"] == ddp["cards"][0]["needed_bytes"]
    assert entry["batch_size"] == ddp["cards"][0]["batch_size"]
    low, high = (f"{size / 2**30:.2f}" for size in ddp["cards"][0]["process_interval_bytes"])
    assert f"{low} to {high}" in run.stdout[run.stdout.rindex("ANSWER:") :]
    assert fsdp["kept_bytes"] < ddp["kept_bytes"]
    for line in ("2GiB GPU x 2", "ddp", "fsdp"):
        assert line in run.stdout
        assert line in (tmp_path / "p.md").read_text()
        assert line in (tmp_path / "p.html").read_text()
    again = run_command(
        "scripts/recommend_batch_size.py", "p.json", "--gpu-memory", "2GiB", "--devices", "2", cwd=tmp_path
    )
    assert again.returncode == 0, again.stderr
    row = next(line.split() for line in again.stdout.splitlines() if line.strip().startswith("ddp "))
    assert int(row[1]) == entry["batch_size"]

"""recommend_batch_size.py --strategy: the table, and what is refused in one line."""

import json

import pytest

from swinmr_profiling.profiler.batch_size.budget import budget_on
from swinmr_profiling.profiler.batch_size.fit import largest_batch, needed_bytes
from swinmr_profiling.profiler.prediction.settings import setting_of
from swinmr_profiling.profiler.ranks import predicted_rank
from swinmr_profiling.profiler.ranks.predicted_rank import NCCL_BYTES, predict_rank
from swinmr_profiling.profiler.record.files.reading import parse_profile
from swinmr_profiling.profiler.record.prediction_intervals import interval_of
from swinmr_profiling.profiler.reports.html.html_file import html_text
from swinmr_profiling.profiler.reports.markdown_file import markdown_text
from swinmr_profiling.profiler.reports.views.view import view_of
from swinmr_profiling.profiler.run import strategy_recommendation
from swinmr_profiling.profiler.run.options.recommendation_command_line import parse_recommendation_arguments
from swinmr_profiling.profiler.run.strategy_recommendation import recommend_strategies, strategy_block
from swinmr_profiling.scripts import profile_model, recommend_batch_size
from swinmr_profiling.training.errors import StrategyError
from tests.made_profiles import profile as made_profile
from tests.profiler.ranks.three_layers import config_of, three_layers
from tests.training_profiles import gpu_of, measured, memory_model, profile, replayed, typed_model

WIDTH = 1536
W = WIDTH * WIDTH * 4


def prediction(strategy, devices=4, **training):
    config = config_of(strategy, WIDTH, **training)
    return predict_rank(three_layers(WIDTH), config, setting_of(config, "fp32"), devices, asked=[1])


@pytest.mark.slow
def test_a_rank_under_each_strategy():
    """Between steps: weights 3 W and states 6 W, under DDP 3 W of buckets; shards are a quarter. ZeRO-1 of three layers
    between four: the largest rank has one, and its two states."""
    found = {strategy: prediction(strategy) for strategy in ("ddp", "zero1", "fsdp")}
    kept = {strategy: one.kept_bytes / W for strategy, one in found.items()}
    assert kept == pytest.approx({"ddp": 12, "zero1": 3 + 3 + 2, "fsdp": 9 / 4}, rel=1e-4)
    assert found["ddp"].sent == {"all_reduce": 3 * W}
    assert found["zero1"].sent == {"all_reduce": 3 * W, "broadcast": 3 * W}
    assert found["fsdp"].sent == {"all_gather": 6 * W, "reduce_scatter": 3 * W}
    assert found["fsdp"].ring_bytes == 9 * W * 3 // 4
    # A whole checkpoint is put together one layer at a time.
    assert found["fsdp"].export_bytes == found["fsdp"].kept_bytes + W
    assert found["ddp"].export_bytes == found["ddp"].kept_bytes
    assert found["fsdp"].held_bytes == W
    assert found["ddp"].setting.ddp_bucket_bytes == 0  # they are in the trace
    assert found["fsdp"].interval_bytes((1, 10), process=True) == (1, 10 + W + NCCL_BYTES)


def test_other_versions_of_torch_are_called_untested(monkeypatch):
    monkeypatch.setattr(predicted_rank.torch, "__version__", "2.11.0")
    assert predicted_rank.untested_torch()[0].startswith("torch 2.11.0: its engines were not held")


def test_too_many_devices_are_refused():
    with pytest.raises(StrategyError, match="at most 64"):
        prediction("ddp", devices=65)


@pytest.fixture
def saved(tmp_path):
    """A profile made without a GPU; what it predicts for one GPU is not looked at."""
    file = tmp_path / "profile.json"
    content = profile(model=memory_model(settings=[replayed(80, 1024, is_config=True)]))
    content["config"]["resolved"] = config_of("ddp", WIDTH).model_dump(mode="json")
    file.write_text(json.dumps(content))
    return file


def test_devices_without_a_strategy_are_the_traced_ddp(saved, monkeypatch, capsys):
    """One truth: the table's bytes are those of the rank's own trace, buckets in it, and nothing is added to them."""
    asked = []
    found = prediction("ddp")

    def predict(config, precision, strategies, devices, *, trust_config, on_refused):
        asked.append((list(strategies), devices))
        return [found]

    monkeypatch.setattr(strategy_recommendation, "predict_strategies", predict)
    assert recommend_batch_size.main([str(saved), "--gpu-memory", "4GiB", "--devices", "4"]) == 0
    assert asked == [(["ddp"], 4)]
    printed = capsys.readouterr().out
    [row] = [line.split() for line in printed.splitlines() if line.strip().startswith("ddp ")][:1]
    budget = budget_on("4GiB GPU", 4 * 2**30, None, torch_version="2.14.1")
    largest = largest_batch(found.setting, budget)
    needed = needed_bytes(found.setting, largest, budget)
    assert row[:4] == ["ddp", str(largest), str(4 * largest), f"{needed / 2**30:.2f}"]
    # 6 of ring bytes: 2 (n - 1) / n of the gradients, 3 W.
    assert f"{2 * 3 * W * 3 // 4 / 2**20:,.1f}" in printed


def test_a_measurement_on_one_gpu_outranks_the_trace(saved, monkeypatch, capsys):
    monkeypatch.setattr(strategy_recommendation, "predict_strategies", None)
    model = memory_model(settings=[replayed(80, 1024, is_config=True)])
    measured_too = profile(model=model, blocks={1: measured(1200), 2: measured(2200)}, gpu=gpu_of(24_124))
    saved.write_text(json.dumps(measured_too))
    assert recommend_batch_size.main([str(saved), "--devices", "2", "--verbose"]) == 0
    assert "it ran on one device, not on 2" in " ".join(capsys.readouterr().out.split())


def test_the_block_of_a_profile_and_its_reports():
    found = prediction("fsdp")
    budget = budget_on("a card", 4 * 2**30, None, torch_version="2.14.1")
    model = typed_model(memory_model(settings=[replayed(80, 1024, is_config=True)]))
    [entries] = recommend_strategies(model, [found], [budget], target_batch=None)
    block = strategy_block(found, entries)
    [on_card] = block.cards
    assert (block.strategy, block.devices, block.kept_bytes) == ("fsdp", 4, found.kept_bytes)
    assert on_card.batch_size == largest_batch(found.setting, budget)
    low, high = on_card.process_interval_bytes
    alone = interval_of(found.setting, "process", on_card.needed_bytes)
    assert (low, high) == (alone[0], alone[1] + found.held_bytes + NCCL_BYTES)
    content = {**made_profile(), "strategies": [block.model_dump(mode="json")]}
    view = view_of(parse_profile(json.dumps(content), "p.json"))
    text, page = markdown_text(view), html_text(view)
    assert f"| a card x 4 | fsdp | {on_card.batch_size} | {4 * on_card.batch_size} |" in text
    assert "## Several GPUs (predicted, not verified on a GPU)" in text
    assert f"{block.ring_bytes / 2**20:,.1f}" in text
    assert "Several GPUs" in page
    assert f"{block.export_bytes / 2**20:,.1f}" in page
    assert "Several GPUs" not in markdown_text(view_of(parse_profile(json.dumps(made_profile()), "p.json")))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--strategy", "ddp"], "between how many GPUs"),
        (["--strategy", "tensor", "--devices", "4"], "tensor and pipeline parallel are not predicted"),
        (["--strategy", "horovod", "--devices", "4"], "ddp, zero1 or fsdp"),
        (["--strategy", "ddp,fsdp", "--devices", "4", "--write", "x.json"], "name one strategy"),
    ],
)
def test_options_that_do_not_go(arguments, told, capsys):
    with pytest.raises(SystemExit) as ended:
        parse_recommendation_arguments(["profile.json", *arguments])
    assert ended.value.code == 2
    assert told in capsys.readouterr().err


TIED = """
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Conv2d(1, 1, 3, padding=1) for _ in range(2))
        self.blocks[1].weight = self.blocks[0].weight
    def forward(self, x):
        return self.blocks[1](self.blocks[0](x))
"""


@pytest.mark.slow
def test_a_strategy_that_is_refused_costs_no_other(tmp_path, capfd):
    """FSDP2 gathers a weight that two of its units share in neither."""
    (tmp_path / "net.py").write_text(TIED)
    model = {"net_type": "custom", "target": "net.py:Net", "input_shapes": [[1, 16, 16]]}
    (tmp_path / "tied.json").write_text(json.dumps({"model": model, "data": {"patch_size": 16}}))
    file = tmp_path / "profile.json"
    asked = ["--config", str(tmp_path / "tied.json"), "--trust-config", "--device", "cpu", "--predict-only"]
    more = ["--gpu-memory", "4GiB", "--devices", "2", "--strategy", "fsdp,ddp", "--output", str(file)]
    assert profile_model.main([*asked, *more]) == 0
    saved = json.loads(file.read_text())
    assert [one["strategy"] for one in saved["strategies"]] == ["ddp"]
    assert any("fsdp is not predicted" in text["message"] for text in saved["warnings"])
    capfd.readouterr()
    arguments = [str(file), "--trust-config", *more[:-2]]
    assert recommend_batch_size.main(arguments) == 4
    out, err = capfd.readouterr()
    assert "  ddp " in out
    assert "error: fsdp is not predicted" in err
    assert "Traceback" not in err

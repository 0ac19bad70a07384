"""recommend_batch_size.py --strategy: the table, and what is refused in one line."""

import pytest

from swinmr_profiling.profiler.prediction.settings import setting_of
from swinmr_profiling.profiler.ranks import predicted_rank
from swinmr_profiling.profiler.ranks.predicted_rank import NCCL_BYTES, predict_rank
from swinmr_profiling.profiler.run.options.recommendation_command_line import parse_recommendation_arguments
from swinmr_profiling.training.errors import StrategyError
from tests.profiler.ranks.three_layers import config_of, three_layers

WIDTH = 1536
W = WIDTH * WIDTH * 4


def prediction(strategy, devices=4, **training):
    config = config_of(strategy, WIDTH, **training)
    return predict_rank(three_layers(WIDTH), config, setting_of(config, "fp32"), devices, asked=[1])


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


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--strategy", "ddp"], "between how many GPUs"),
        (["--strategy", "tensor", "--devices", "4"], "tensor and pipeline parallel are not predicted"),
        (["--strategy", "horovod", "--devices", "4"], "ddp, zero1 or fsdp"),
        (["--strategy", "ddp", "--devices", "4", "--write", "x.json"], "drop --write"),
    ],
)
def test_options_that_do_not_go(arguments, told, capsys):
    with pytest.raises(SystemExit) as ended:
        parse_recommendation_arguments(["profile.json", *arguments])
    assert ended.value.code == 2
    assert told in capsys.readouterr().err

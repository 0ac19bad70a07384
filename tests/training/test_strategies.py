"""Which modules are units, what does not go together, and a state that goes from one strategy to another."""

import pytest
import torch
from torch import nn

from swinmr_profiling.configs import ConfigError, config_from_dict
from swinmr_profiling.models.registry import build_model
from swinmr_profiling.training import distributed
from swinmr_profiling.training.errors import StrategyError
from swinmr_profiling.training.strategies.engine import build_engine, sharding_units
from tests.training.conftest import TINY_RUN, merged


def of(**changes):
    return config_from_dict(merged(TINY_RUN, changes))


def test_units_are_the_outermost_repeated_blocks():
    block = lambda: nn.Sequential(nn.Linear(2, 2), nn.ReLU())  # noqa: E731

    class Level(nn.Module):  # whose parts are called one by one
        def __init__(self):
            super().__init__()
            self.stages, self.down = nn.ModuleList([block(), block()]), nn.Linear(2, 2)

    network = nn.Module()
    network.head = nn.Linear(2, 2)
    network.blocks = nn.ModuleList([block(), nn.Identity(), block()])
    network.levels = nn.ModuleList([Level()])
    network.stack = nn.Sequential(block(), block(), block())
    network.mixed = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    expected = [network.blocks[0], network.blocks[2], *network.levels[0].stages, *network.stack]
    assert sharding_units(network) == expected


def test_units_of_a_swinir_are_its_groups():
    network = build_model(of(**{"model.depths": [2, 2], "model.num_heads": [2, 2]})).module
    assert sharding_units(network) == list(network.layers)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {"training.strategy": "zero1", "training.optimizer.type": "adafactor"},
            "takes the optimizers adam, adamw",
        ),
        (
            {"training.strategy": "fsdp", "training.optimizer.type": "muon"},
            "takes the optimizers adam, adamw",
        ),
        ({"training.strategy": "fsdp", "system.mixed_precision": "fp16"}, "no fp16"),
        ({"training.strategy": "fsdp", "system.channels_last": True}, "channels_last"),
        ({"training.strategy": "fsdp", "system.compile": True}, "compile"),
    ],
)
def test_what_does_not_go_together(changes, told):
    with pytest.raises(StrategyError, match=told):
        build_engine(of(**changes), 2, torch.device("cpu"))
    build_engine(of(**changes), 1, torch.device("cpu"))  # one process spreads nothing


def test_fp16_that_a_card_without_bf16_would_take(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: False)
    config = of(**{"training.strategy": "fsdp", "system.mixed_precision": True})
    with pytest.raises(StrategyError, match="no fp16"):
        build_engine(config, 2, torch.device("cuda"))
    build_engine(config, 2, torch.device("cpu"))


@pytest.mark.parametrize(("from_host", "backend"), [(False, "nccl"), (True, "cpu:gloo,cuda:nccl")])
def test_shards_on_the_host_are_sent_by_gloo(monkeypatch, from_host, backend):
    """Without a GPU: what the group is asked for."""
    opened = []
    for name, value in (("WORLD_SIZE", "2"), ("RANK", "0"), ("LOCAL_RANK", "0")):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setattr(distributed.dist, "init_process_group", opened.append)
    monkeypatch.setattr(distributed.dist, "destroy_process_group", lambda: None)
    with distributed.open_world("cuda", from_host=from_host) as world:
        assert world.size == 2
    assert opened == [backend]


@pytest.mark.parametrize(
    ("strategy", "size", "offloads"), [("fsdp", 2, True), ("fsdp", 1, False), ("ddp", 2, False)]
)
def test_shards_alone_are_offloaded(strategy, size, offloads):
    config = of(**{"training.strategy": strategy, "training.fsdp.offload_to_cpu": True})
    assert build_engine(config, size, torch.device("cpu")).offloads == offloads


def test_other_parallelism_is_no_strategy():
    with pytest.raises(ConfigError, match='"ddp", "zero1" or "fsdp"'):
        of(**{"training.strategy": "tensor"})

"""Random states of several processes: each draws its own numbers, before a stop and after it."""

import pytest
import torch

from swinmr_profiling.training.distributed import World
from swinmr_profiling.training.run.checkpoints import random_states, read_checkpoint, write_checkpoint
from swinmr_profiling.training.strategies.engine import Engine


class NamedWorld(World):
    """A process that knows its rank, without the others: nothing is exchanged."""

    def gather(self, value):
        return [f"of rank {rank}" if rank != self.rank else value for rank in range(self.size)]


@pytest.fixture
def of_rank(tiny_run, monkeypatch):
    """Builds the tiny run as one of three processes; the global batch stays that of the file."""

    def build(rank):
        from tests.training import conftest

        world = NamedWorld(rank, 3, torch.device("cpu"))
        monkeypatch.setattr(conftest, "World", lambda *args: world)
        monkeypatch.setattr(Engine, "wrap", lambda self, network: network)
        return tiny_run({"model.drop_path_rate": 0.5})

    return build


def next_draw():
    return torch.rand(4).tolist()


@pytest.fixture
def three_states(stopped):
    """A checkpoint of three processes, seeds 70, 71 and 72; what each draws next."""
    file = stopped()
    content = read_checkpoint(file)
    states, draws = [], []
    for rank in range(3):
        torch.manual_seed(70 + rank)
        states.append(random_states())
        draws.append(next_draw())
    sizes = content["batch_sizes"]
    sizes.update(devices=3, global_batch_size=3 * sizes["global_batch_size"])
    content["random_states"] = states
    write_checkpoint({key: content[key] for key in content if key not in ("format", "version")}, file)
    return draws


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_a_resumed_process_has_its_own_random_state(three_states, of_rank, rank):
    assert three_states[0] != three_states[1] != three_states[2]
    run = of_rank(rank)
    assert run.resume()
    assert next_draw() == three_states[rank]


def test_processes_draw_different_numbers_from_one_seed(of_rank):
    """The networks are equal (one seed), what is drawn in the steps is not: seed + rank (here 0, 1 and 2)."""
    networks, drawn = [], []
    for rank in range(3):
        run = of_rank(rank)
        drawn.append(next_draw())
        networks.append([parameter.clone() for parameter in run.state.module.parameters()])
    for parameters in networks[1:]:
        assert all(map(torch.equal, parameters, networks[0]))
    expected = []
    for seed in (run.config.system.seed + rank for rank in range(3)):
        torch.manual_seed(seed)
        expected.append(next_draw())
    assert drawn == expected


def test_every_process_writes_its_state_into_the_one_checkpoint(of_rank):
    """The first process saves; the list is by rank."""
    run = of_rank(1)
    torch.manual_seed(5)
    expected = next_draw()
    torch.manual_seed(5)
    states = run._content(run._whole)["random_states"]
    assert (states[0], states[2]) == ("of rank 0", "of rank 2")
    torch.set_rng_state(states[1]["torch"])
    assert next_draw() == expected

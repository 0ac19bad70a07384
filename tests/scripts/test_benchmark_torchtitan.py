"""The Llama that torchtitan's records are predicted with: size, what its checkpoints keep, and the printed lines."""

import pytest
import torch

from swinmr_profiling.scripts import benchmark_torchtitan
from swinmr_profiling.scripts.benchmark_torchtitan import GIB, Llama, LlamaWithLoss, Record, predicted

SMALL = dict(width=256, heads=4, key_heads=2, hidden=512, vocabulary=16384)
LENGTH, SAMPLES = 512, 2


def test_parameters_are_the_published_ones():
    with torch.device("meta"):
        network = LlamaWithLoss(Llama(), 8192, "operators")
    # Of the model card: 8.03 billion. Per layer: 2 x 4096^2 + 2 x 4096 x 1024 + 3 x 4096 x 14336 + two norms.
    layer = 2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 14336 + 2 * 4096
    assert (
        sum(p.numel() for p in network.parameters()) == 32 * layer + 2 * 128256 * 4096 + 4096 == 8_030_261_248
    )


@pytest.mark.parametrize(
    ("kept", "numbers"),
    # A token's numbers: the layer's input, and of the operators that are kept the query, the value, attention's
    # result, the gate and the second result of the perceptron.
    [("nothing", 256), ("operators", 256 + 256 + 128 + 256 + 512 + 256)],
)
def test_what_a_layer_keeps(kept, numbers):
    record = Record(1, 2, SAMPLES, LENGTH, kept, 1.0)
    one, two = (predicted(record, Llama(layers=layers, **SMALL))[2] for layers in (1, 2))
    found = two["saved_activations"] - one["saved_activations"]
    # In bf16; of attention its logarithms of sums, in fp32, and the state of a generator.
    sums = SAMPLES * 4 * LENGTH * 4 if kept == "operators" else 0
    assert found == pytest.approx(SAMPLES * LENGTH * numbers * 2 + sums, abs=2048)


def test_a_line_for_each_record(monkeypatch, capsys):
    """Records of one setting are traced once; what was not built is said."""
    made = []
    monkeypatch.setattr(
        benchmark_torchtitan,
        "predicted",
        lambda record: (made.append(record), (60.0, 80.0, {"parameters": 2 * GIB, "ema": 0}))[1],
    )
    assert benchmark_torchtitan.main([]) == 0
    out = capsys.readouterr().out
    assert len(made) == 3
    assert "8 GPUs, 2 x 8192: published 82.4 GiB, predicted 80.0 reserved (-2.9%), 60.0 allocated\n" in out
    assert out.count("; not built: torch.compile of each layer") == 5
    assert "  parameters 2.0\n" in out

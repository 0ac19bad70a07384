"""Weights in every wrapping they are published in, and files that are none."""

import pickle
from collections import OrderedDict

import pytest
import torch
from torch import nn

from swinmr_profiling.models.checkpoints.published_weights import load_weights, unwrap_state_dict
from swinmr_profiling.models.errors import ModelError


class Net(nn.Module):
    """Two layers and a buffer, all of one value."""

    def __init__(self, value=0.0, width=4):
        super().__init__()
        self.first = nn.Linear(3, width)
        self.last = nn.Linear(width, 2)
        self.register_buffer("scale", torch.tensor([value]))
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.fill_(value)

    @property
    def values(self):
        return {float(x) for tensor in self.state_dict().values() for x in tensor.flatten()}


def weights(value, prefix=""):
    return OrderedDict((prefix + key, tensor) for key, tensor in Net(value).state_dict().items())


def saved(tmp_path, content):
    torch.save(content, tmp_path / "1000_G.pth")
    return tmp_path / "1000_G.pth"


def refusal(file, module=None):
    module = module or Net()
    with pytest.raises(ModelError) as caught:
        load_weights(module, file)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(f"{file}: ")
    return message.removeprefix(f"{file}: ")


WRAPPINGS = {
    "bare": weights(7),
    "params": {"params": weights(7)},
    "params_ema": {"params_ema": weights(7)},
    "the averaged weights before the others": {"params": weights(1), "params_ema": weights(7)},
    "state_dict": {"state_dict": weights(7), "epoch": 3},
    "a training checkpoint": {"model": weights(7), "optimizer": {"state": {}}, "step": 10},
    "DataParallel": weights(7, "module."),
    "compiled": weights(7, "_orig_mod."),
    "DataParallel of compiled": weights(7, "module._orig_mod."),
    "compiled DataParallel": weights(7, "_orig_mod.module."),
    "params of DataParallel": {"params": weights(7, "module.")},
}


@pytest.mark.parametrize("name", WRAPPINGS)
def test_weights_are_found_in_every_wrapping(tmp_path, name):
    module = Net()
    load_weights(module, saved(tmp_path, WRAPPINGS[name]))
    assert module.values == {7.0}


def test_the_old_format_of_torch_is_read(tmp_path):
    torch.save(weights(7), tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    module = Net()
    load_weights(module, tmp_path / "old.pth")
    assert module.values == {7.0}


def test_a_prefix_that_only_some_keys_have_is_a_name():
    content = {"module.weight": torch.zeros(1), "head.weight": torch.zeros(1)}
    assert set(unwrap_state_dict(content)) == set(content)


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"params": {}},
        {"epoch": 3},
        [torch.zeros(1)],
        torch.zeros(1),
        {"params": weights(1) | {"note": 1}},
    ],
)
def test_what_is_no_dict_of_tensors_is_refused(tmp_path, content):
    message = refusal(saved(tmp_path, content))
    assert message.startswith(
        "holds no state dict (looked for a dict of tensors, also under params_ema, params"
    )


class Payload:
    """Pickled code: unpickling it would make a file."""

    def __init__(self, trace):
        self.trace = trace

    def __reduce__(self):
        return (open, (self.trace, "w"))


@pytest.mark.parametrize("protocol", ["torch", "pickle"])
def test_code_in_a_file_is_not_run(tmp_path, protocol):
    trace = tmp_path / "was_run"
    content = {**weights(7), "payload": Payload(str(trace))}
    if protocol == "torch":
        file = saved(tmp_path, content)
    else:
        file = tmp_path / "code.pth"
        file.write_bytes(pickle.dumps(Payload(str(trace)), protocol=2))
    module = Net(3)
    assert refusal(file, module).startswith("refused: reading it would import and run ")
    assert not trace.exists()
    assert module.values == {3.0}


def test_a_whole_pickled_network_is_refused(tmp_path):
    assert refusal(saved(tmp_path, Net(7))).startswith("refused: reading it would import and run ")


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[: len(data) // 2],
        lambda data: b"not a checkpoint\n" * 10,
        lambda data: b"\0" * 1000,
    ],
)
def test_a_damaged_file_is_refused(tmp_path, damage):
    file = saved(tmp_path, weights(7))
    file.write_bytes(damage(file.read_bytes()))
    module = Net(3)
    assert refusal(file, module).startswith("cannot be read as a checkpoint of tensors: ")
    assert module.values == {3.0}


def test_a_missing_file_is_said(tmp_path):
    assert refusal(tmp_path / "no.pth") == "no such checkpoint"


def test_a_folder_is_refused(tmp_path):
    assert refusal(tmp_path).startswith("cannot be read as a checkpoint of tensors: ")


def test_another_architecture_names_the_first_keys_that_differ(tmp_path):
    content = weights(7)
    content["middle.weight"] = content.pop("last.weight")
    assert refusal(saved(tmp_path, content)) == (
        "is of another architecture: misses last.weight, has middle.weight"
    )


def test_no_more_than_three_keys_of_each_kind_are_named(tmp_path):
    content = {f"layers.{index}.weight": torch.zeros(1) for index in range(50)}
    message = refusal(saved(tmp_path, content))
    assert message.count("misses ") == 3
    assert message.endswith("has layers.0.weight, has layers.1.weight, has layers.2.weight")


def test_another_size_names_the_key_and_both_sizes(tmp_path):
    message = refusal(saved(tmp_path, weights(7)), Net(width=5))
    assert message.startswith("size mismatch for first.weight: ")
    assert "torch.Size([4, 3])" in message
    assert "torch.Size([5, 3])" in message

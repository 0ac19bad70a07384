"""Whatever a checkpoint's file holds: its content, or the one error of its reader; nothing in it is executed."""

import io
import json
import pickle
import struct

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from swinmr_profiling.configs import config_from_dict
from swinmr_profiling.models.checkpoints.published_weights import load_weights
from swinmr_profiling.models.errors import ModelError
from swinmr_profiling.models.registry import build_model
from swinmr_profiling.training.evaluation.evaluated_checkpoint import load_evaluated
from swinmr_profiling.training.run.checkpoints import FORMAT, VERSION, CheckpointError, read_checkpoint
from tests.properties.mutated_files import ODD_VALUES, damaged_bytes
from tests.training.conftest import TINY_RUN

CONFIG = config_from_dict(TINY_RUN)
WEIGHTS = torch.nn.Conv2d(1, 2, 3).state_dict()
OURS = {
    "format": FORMAT,
    "version": VERSION,
    "step": 7,
    "params": WEIGHTS,
    "params_ema": None,
    "optimizer": {
        "state": {0: {"step": torch.tensor(7.0), "exp_avg": torch.zeros(2)}},
        "param_groups": [{"lr": 0.1}],
    },
    "config": CONFIG.model_dump(mode="json"),
}
ODD_TENSORS = [
    torch.zeros(0),
    torch.tensor(float("nan")),
    torch.zeros(2, 1, 3, 3, dtype=torch.complex64),
    torch.zeros(2, 1, 3, 3, dtype=torch.int8),
    torch.zeros(1).expand(10**6),
    torch.zeros(2, 1, 3, 3, device="meta"),
    torch.zeros(2, 2).to_sparse(),
    torch.nn.Parameter(torch.zeros(2)),
]


def saved(content, **options):
    stream = io.BytesIO()
    torch.save(content, stream, **options)
    return stream.getvalue()


FILES = [
    saved(OURS),
    saved(WEIGHTS),
    saved({"params_ema": WEIGHTS}),
    saved({"params": WEIGHTS}, _use_new_zipfile_serialization=False),
    pickle.dumps({"params": 1}),
    b"",
    b"PK\x03\x04",
]


class Runs:
    """What would touch a file if it were unpickled."""

    def __reduce__(self):
        return (open, ("executed", "w"))


@st.composite
def contents(draw):
    """A checkpoint's dictionary with keys missing, of other types, or with odd tensors."""
    content = dict(draw(st.sampled_from([OURS, {"params": WEIGHTS}, WEIGHTS])))
    for _ in range(draw(st.integers(1, 3))):
        if not content:
            break
        key = draw(st.sampled_from(sorted(content)))
        action = draw(st.sampled_from(("odd", "tensor", "remove", "inner", "add", "run")))
        inner = content[key]
        if action == "odd":
            content[key] = draw(st.sampled_from(ODD_VALUES))
        elif action == "tensor":
            content[key] = draw(st.sampled_from(ODD_TENSORS))
        elif action == "remove":
            del content[key]
        elif action == "add":
            content[draw(st.sampled_from(["x", "module.weight", "params_ema", "state_dict"]))] = inner
        elif action == "run":
            content[key] = Runs()
        elif isinstance(inner, dict) and inner:
            changed = dict(inner)
            changed[draw(st.sampled_from(sorted(map(str, inner))))] = draw(
                st.sampled_from([*ODD_VALUES, *ODD_TENSORS])
            )
            content[key] = changed
    return content


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return tmp_path_factory.mktemp("checkpoints") / "some.pth"


@pytest.fixture(scope="module")
def network():
    return build_model(CONFIG).module


def is_one_line(error):
    assert "\n" not in str(error)
    str(error).encode("utf-8")


def read_by_all(file, network):
    for read, error_class in (
        (read_checkpoint, CheckpointError),
        (lambda file: load_weights(torch.nn.Conv2d(1, 2, 3), file), ModelError),
        (lambda file: load_evaluated(torch.nn.Conv2d(1, 2, 3), file, CONFIG), (ModelError, CheckpointError)),
    ):
        try:
            read(file)
        except error_class as error:
            is_one_line(error)


# An archive whose end says that it lies on two disks.
TWO_DISKS = b"PK\x03\x04PK\x06\x07" + struct.pack("<LQL", 1, 0, 2) + b"PK\x05\x06" + bytes(18)


@given(content=damaged_bytes(FILES))
@example(content=TWO_DISKS)
def test_damaged_bytes(file, network, content):
    file.write_bytes(content)
    read_by_all(file, network)


@pytest.mark.slow
@given(content=contents())
@example(content={**OURS, "format": torch.zeros(0)})
@example(content={key: value for key, value in OURS.items() if key != "version"})
@example(content={**OURS, "version": torch.zeros(0)})
@example(content={**OURS, "step": torch.zeros(2, 1, 3, 3)})
@example(content={**OURS, "config": True})
@example(content={**WEIGHTS, "weight": torch.zeros(2, 1, 3, 3, device="meta")})
def test_other_contents(file, network, content, monkeypatch):
    try:
        data = saved(content)
    except Exception:  # what torch itself cannot write
        return
    file.write_bytes(data)
    read_by_all(file, network)
    assert not file.with_name("executed").exists()


@given(document=st.sampled_from(ODD_VALUES))
def test_a_file_of_a_single_value(file, network, document):
    file.write_bytes(saved(json.loads(json.dumps(document))))
    read_by_all(file, network)

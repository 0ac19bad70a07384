"""What tests of the training commands share."""

import json

import pytest

from tests.training.conftest import TINY_RUN, merged


@pytest.fixture
def write_config(tmp_path):
    def write(changes=None, name="tiny.json"):
        file = tmp_path / name
        file.write_text(json.dumps(merged({**TINY_RUN, "paths": {"root": "runs"}}, changes or {})))
        return file

    return write

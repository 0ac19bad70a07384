"""What the tests of the commands' faults share."""

import pytest

from tests.scripts.faulty_command import Command


@pytest.fixture
def command(tmp_path):
    """`profile_model.py` on the faulty network; no process of it may be left at the end."""
    made = Command(tmp_path)
    yield made
    assert made.left_behind() == []

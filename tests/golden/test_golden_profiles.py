"""Profiles of every kind keep their keys, figures and enums; whoever changes one writes the file anew, and says so."""

import json

import pytest

from tests.golden.kinds import HERE, KINDS, make


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", KINDS)
def test_a_profile_keeps_what_readers_rely_on(kind, tmp_path):
    expected = json.loads((HERE / f"{kind}.json").read_text())
    # JSON has one kind of list and one of number.
    found = json.loads(json.dumps(make(kind, tmp_path)))
    assert found == expected

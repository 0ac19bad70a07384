"""Whatever a plan's file holds: it is read, or said in one line to be none."""

import json

import pytest
from hypothesis import given

from swinmr_profiling.profiler.plan.errors import PlanError
from swinmr_profiling.profiler.plan.plan_file import read_plan
from tests.profiler.plan.made_plan import plan
from tests.properties.mutated_files import as_text, damaged, nearly


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return tmp_path_factory.mktemp("plans") / "plan.json"


def is_one_line(error):
    assert "\n" not in str(error)
    assert len(str(error)) < 2000


def read(file, text):
    file.write_text(text, encoding="utf-8", errors="replace")
    try:
        found = read_plan(file)
    except PlanError as error:
        is_one_line(error)
    else:
        assert found.setting in found.settings


def test_the_plan_itself_is_one(file):
    file.write_text(json.dumps(plan()))
    assert read_plan(file).setting.micro_batch == 8


@given(document=nearly([plan()]))
def test_nearly_a_plan(file, document):
    read(file, document if isinstance(document, str) else as_text(document))


@given(text=damaged([json.dumps(plan(), indent=1)]))
def test_damaged_text(file, text):
    read(file, text)

"""The table of pipeline classes: the page holds every class, and rows of a seeded sample are made anew."""

import re

import pytest

from tests.conftest import REPOSITORY

pytest.importorskip("diffusers")
PAGE = REPOSITORY / "docs" / "pipeline_classes.md"
LEAST_EQUAL = 150
# The quick tests make the first of these anew, the slow ones all.
SAMPLE, QUICK = 24, 2


@pytest.fixture(scope="module")
def table():
    from swinmr_profiling.scripts import table_of_pipelines

    return table_of_pipelines


def page_rows():
    rows = re.findall(
        r"^\| (\w+) \| ([\w ,]+?) \| ([\d,]*) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )
    return {name: (status, int(macs.replace(",", "")) if macs else None) for name, status, macs in rows}


def test_the_page_has_every_public_class_of_the_diffusers_that_it_was_made_with(table):
    import diffusers

    rows, text = page_rows(), PAGE.read_text(encoding="utf-8")
    equal = [name for name, (status, _) in rows.items() if status == table.EQUAL]
    assert len(equal) >= LEAST_EQUAL
    assert f"**{len(equal)}** of {len(rows)}" in text
    if f"diffusers {diffusers.__version__}," in text:
        assert set(rows) == set(table.pipeline_classes())


def sample():
    rows = page_rows() if PAGE.exists() else {}
    from swinmr_profiling.scripts.table_of_pipelines import EQUAL, seeded_sample

    return seeded_sample([name for name, (status, _) in rows.items() if status == EQUAL], SAMPLE)


@pytest.mark.sampled(QUICK)
@pytest.mark.parametrize("name", sample())
def test_a_row_of_the_sample_is_made_anew(table, name):
    import diffusers

    kinds = table.pipeline_classes()
    if name not in kinds:
        pytest.skip(f"diffusers {diffusers.__version__} has no {name}")
    row = table.timed_row(name, kinds[name])
    if "ftfy" in row.get("reason", ""):
        pytest.skip("it wants ftfy")
    assert (row["status"], row.get("reason")) == (table.EQUAL, "")
    if f"diffusers {diffusers.__version__}," in PAGE.read_text(encoding="utf-8"):
        assert row["macs"] == page_rows()[name][1]

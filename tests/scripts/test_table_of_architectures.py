"""The page of architectures is its own record: a row that stands in it is not made again."""

import re

from swinmr_profiling.models.libraries.spandrel_network import architecture_names, architecture_of
from swinmr_profiling.scripts import table_of_architectures
from swinmr_profiling.scripts.table_of_architectures import TABLE, rows_of, table

ROW = {
    "name": "HAT", "found": "HAT", "input": [3, 64, 32], "parameters": 1_234, "saved_parameters": 1_230,
    "macs": 5_000, "flop_counter": 4_000, "gap": {"aten::bmm": 1_500, "aten::mm": -500},
    "prediction": "ValueError: no",
}  # fmt: skip


def test_a_row_is_read_as_it_was_written():
    assert rows_of(table([ROW])) == {"HAT": ROW}
    # Of another spandrel, nothing holds.
    assert rows_of(table([ROW]).replace("spandrel ", "spandrel 0.")) == {}


def test_the_page_holds_every_architecture_and_each_gap_sums_to_its_difference():
    page = re.sub(
        r"spandrel \S+, torch \S+: ", table_of_architectures._versions(), TABLE.read_text(encoding="utf-8")
    )
    rows = rows_of(page)
    made = {architecture_of(name) for name in rows if name in architecture_names()}
    assert len(made) >= 40
    for row in rows.values():
        assert row["parameters"] == row["saved_parameters"]
        assert sum(row["gap"].values()) == row["macs"] - row["flop_counter"]


def test_what_the_page_has_is_not_made_again(tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    page.write_text(table([ROW]), encoding="utf-8")
    monkeypatch.setattr(table_of_architectures, "TABLE", page)
    asked = []
    monkeypatch.setattr(
        table_of_architectures, "row_of", lambda name, file: asked.append(name) or {**ROW, "name": name}
    )
    monkeypatch.setattr("sys.argv", ["table_of_architectures.py", "--only", "HAT,DAT"])
    assert table_of_architectures.main() == 0
    assert asked == ["DAT"]
    assert list(rows_of(page.read_text(encoding="utf-8"))) == ["DAT", "HAT"]

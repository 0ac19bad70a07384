"""What files and names hold reaches a terminal as text: nothing acts, nothing floods; cells are not formulas."""

import csv
import io
import json
import os

import pytest

from swinmr_profiling.configs import ConfigError, config_from_dict, load_config
from swinmr_profiling.configs.writing.atomic_files import replacing, table_text
from swinmr_profiling.configs.writing.standard_streams import complain, printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x07", r"\x1b[31mred\x07"),
        ("a\x9b2Jb\x7f", r"a\x9b2Jb\x7f"),
        ("\u202egnp.exe", r"\u202egnp.exe"),
        ("a\rb\x00", r"a\rb\x00"),
        ("two\nlines\tof text", "two\nlines\tof text"),
        ("ä λ 漢 🙂", "ä λ 漢 🙂"),
        ("x" * 300, "x" * 300),
        (f"a {'k' * 3000}: unknown", f"a {'k' * 100}...[3001 characters]...{'k' * 99}: unknown"),
    ],
)
def test_printable(text, shown):
    assert printable(text) == shown


def test_one_line_is_one_line():
    assert printable("a\nb\tc\u2028d", one_line=True) == r"a\nb\tc\u2028d"


def test_keys_and_values_of_a_config_are_escaped_and_shortened(tmp_path, capsys):
    raw = {
        "model": {"net_type": "\x1b]0;title\x07", "k" * 3000: 1, "a\nb\x1b[2J": 2},
        "data": {"source": "\x1b[8m"},
    }
    file = tmp_path / "hostile.json"
    file.write_text(json.dumps(raw))
    with pytest.raises(ConfigError) as refused:
        load_config(file)
    complain(f"error: {refused.value}")
    told = capsys.readouterr().err
    assert not any(ord(character) < 32 and character != "\n" for character in told)
    assert max(map(len, told.splitlines())) < 1000
    assert len(told.splitlines()) == len(refused.value.problems)
    raw = {"model": {"net_type": "swinir"}, "x\x1b[31m": 1}
    file.write_text(json.dumps(raw))
    loaded = load_config(file, allow_unknown=True)
    assert any(r"x\x1b[31m" in message for message in loaded.messages)
    with pytest.raises(ConfigError, match=r"x\\x1b"):
        config_from_dict(raw)


def test_no_cell_is_a_formula():
    rows = [["=1+1", "+a", "-b", "@c", "\td", "\re", "\nf", -1.5, None, "plain"]]
    [header, row] = csv.reader(io.StringIO(table_text(["=name", *"bcdefghij"], rows)))
    assert header[0] == "'=name"
    assert row == ["'=1+1", "'+a", "'-b", "'@c", "'\td", "'\re", "'\nf", "-1.5", "", "plain"]


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o027, 0o640), (0o002, 0o664), (0o077, 0o600)])
def test_files_have_the_permissions_that_the_umask_leaves(tmp_path, umask, mode):
    file = tmp_path / "step_000000001.pth"
    before = os.umask(umask)
    try:
        with replacing(file) as temporary, temporary.open("wb") as stream:
            stream.write(b"weights")
    finally:
        os.umask(before)
    assert file.stat().st_mode & 0o777 == mode

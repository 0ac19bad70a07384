"""The commented-JSON reader: what it accepts, and the one clear error for everything else."""

import json
import os
import random
from pathlib import Path

import pytest

from swinmr_profiling.configs import ConfigError
from swinmr_profiling.configs.commented_json import (
    MAX_DEPTH,
    MAX_FILE_BYTES,
    parse_commented_json,
    read_commented_json,
)


def problems_of(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse_commented_json(text, "some.json")
    assert all(line.startswith("some.json: ") for line in str(caught.value).splitlines())
    return caught.value.problems


def problems_of_file(file: Path) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read_commented_json(file)
    assert caught.value.file == str(file)
    assert str(file) in str(caught.value)
    return caught.value.problems


def test_comments_and_trailing_commas_are_accepted():
    text = """// first line
    { /* block
         over lines */ "a": 1, // "b": 2,
      "c": [1, 2, /* two */ ], "d": {"e": null,},
    } // end"""
    assert parse_commented_json(text) == {"a": 1, "c": [1, 2], "d": {"e": None}}


@pytest.mark.parametrize(
    "value",
    [
        "http://x/y",
        "/* no comment */",
        "a // b",
        'quote " // still inside',
        "back\\slash",
        "ends in a backslash\\",
        ",]",
        ", }",
        "// NaN Infinity [[[[",
        "é 漢 😀",
    ],
)
def test_strings_are_left_alone(value):
    plain, escaped = json.dumps(value, ensure_ascii=False), json.dumps(value)
    text = f'{{"key": {plain}, // comment "with" quotes\n "k": [{escaped},],}}'
    assert parse_commented_json(text) == {"key": value, "k": [value]}


def test_comment_signs_in_strings_survive_every_arrangement():
    # Strings made of the signs that matter to the reader, with comments of the same signs between the tokens.
    chance = random.Random(0)
    signs = ["//", "/*", "*/", '"', "\\", ",", "]", "}", "{", "[", ":", " ", "NaN", "x"]

    def noise() -> str:
        body = "".join(chance.choice(signs) for _ in range(chance.randrange(6)))
        return chance.choice(["", " ", f"/*{body.replace('*/', '* /')} */", f"//{body}\n", "\n"])

    for _ in range(500):
        keys = {"".join(chance.choice(signs) for _ in range(4)) + str(i) for i in range(3)}
        expected = {key: ["".join(chance.choice(signs) for _ in range(5)), i] for i, key in enumerate(keys)}
        text = noise() + "{" + noise()
        for key, (string, number) in expected.items():
            parts = [
                json.dumps(key),
                ":",
                "[",
                json.dumps(string),
                ",",
                str(number),
                chance.choice(["", ","]),
            ]
            text += "".join(part + noise() for part in [*parts, "]", ","])
        assert parse_commented_json(text + "}" + noise()) == expected


def test_line_and_column_are_those_of_the_file():
    # Line 3 is `  "b" 2`: after two spaces and "b" and a space, the 2 stands in column 7.
    assert problems_of('{ /* one */ "a": 1, // x\n/* two\n*/"b" 2}')[0].startswith(
        "broken JSON at line 3, column 7:"
    )
    text = '{\n  "a": 1, /* five */ // six\n  "b": tru\n}'
    assert problems_of(text) == ["broken JSON at line 3, column 8: a value is expected here"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the file is empty"),
        ("  \n// only a comment\n", "the file is empty"),
        ('{"a": 1 "b": 2}', "line 1, column 9: a comma or a closing bracket is missing"),
        ("{'a': 1}", "line 1, column 2: a key in double quotes is expected"),
        ('{"a" 1}', "a colon is expected"),
        ('{"a": "x}', "column 7: this string has no closing quote"),
        ('{"a": "x\n"}', "a closing quote missing"),
        ('{"a": 1} x', "column 10: the object has ended"),
        ('{"a": 1', "column 8: a comma or a closing bracket is missing"),
        ('{"a": [,]}', "column 8: a value is expected"),
        ('{"a": [1,,]}', "broken JSON at line 1, column"),
        ("{,}", "broken JSON at line 1, column 2"),
        ('{"a": 1} /* open', "the comment at line 1, column 10 has no closing */"),
        ("[1]", "the top level is a list: an object {...} is expected"),
        ("3", "the top level is a number"),
        ('"x"', "the top level is a string"),
        ("null", "the top level is null"),
        ("true", "the top level is true or false"),
        ('{"a": {"lr": 1, "lr": 2}}', 'key "lr" appears more than once'),
        ('{"a": NaN}', "NaN at line 1, column 7 is not a JSON number: use a number or null"),
        ('{"a": -Infinity}', "-Infinity at line 1, column 7 is not"),
        ('{"a": 1e999}', "the number 1e999 is too large"),
        ('{"a": %s}' % ("7" * 5000), "has 5000 digits: too long"),
        ('{"a": "\\ud800"}', "half a character"),
    ],
)
def test_broken_text_is_refused_in_one_clear_line(text, said):
    problems = problems_of(text)
    assert len(problems) == 1
    assert said in problems[0]


def test_nesting_is_accepted_up_to_the_limit_and_refused_beyond_it():
    def nested(depth: int) -> str:  # the object itself is one level
        return '{"a": ' + "[" * (depth - 1) + "]" * (depth - 1) + "}"

    assert "a" in parse_commented_json(nested(MAX_DEPTH))
    # `{"a": ` fills 6 columns and is level 1, so level MAX_DEPTH + 1 opens with the bracket number MAX_DEPTH.
    assert problems_of(nested(MAX_DEPTH + 1)) == [
        f"nested deeper than {MAX_DEPTH} levels at line 1, column {6 + MAX_DEPTH}"
    ]
    assert "nested deeper" in problems_of('{"a":' * 100_000)[0]


def test_missing_file(tmp_path):
    assert problems_of_file(tmp_path / "none.json") == ["no such file: check the path"]


def test_folder_instead_of_a_file(tmp_path):
    assert problems_of_file(tmp_path) == ["is a folder: name a JSON file in it"]


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.json")
    assert "not a regular file" in problems_of_file(tmp_path / "pipe.json")[0]


def test_unreadable_file(tmp_path, monkeypatch):
    file = tmp_path / "secret.json"
    file.write_text("{}")
    file.chmod(0)
    if os.access(file, os.R_OK):  # root reads everything

        def refuse(self):
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(Path, "read_bytes", refuse)
    assert problems_of_file(file) == ["may not be read: check its permissions"]


def test_a_file_of_50_mb_is_refused_unread(tmp_path, monkeypatch):
    file = tmp_path / "huge.json"
    with file.open("wb") as stream:
        stream.truncate(50 * 2**20)
    monkeypatch.setattr(Path, "read_bytes", lambda self: pytest.fail("the file was read"))
    assert problems_of_file(file) == ["is 50.0 MiB, a config is at most 5 MiB: is this the right file?"]


def test_a_file_at_the_size_limit_is_read(tmp_path):
    file = tmp_path / "large.json"
    file.write_bytes(b'{"a": 1}'.ljust(MAX_FILE_BYTES))
    assert read_commented_json(file)[0] == {"a": 1}


def test_byte_order_mark_is_accepted_and_other_encodings_are_not(tmp_path):
    file = tmp_path / "c.json"
    file.write_bytes(b'\xef\xbb\xbf{"a": "\xc3\xa9"}')
    assert read_commented_json(file)[0] == {"a": "é"}
    file.write_bytes('{"a": "é"}'.encode("latin-1"))
    # {"a": " is seven bytes, so the é is at offset 7.
    assert problems_of_file(file) == ["not UTF-8 text (byte 0xe9 at offset 7): save the file as UTF-8"]
    file.write_bytes('{"a": 1}'.encode("utf-16"))
    assert "not UTF-8 text" in problems_of_file(file)[0]


def test_a_name_that_no_file_can_have():
    with pytest.raises(ConfigError, match="is not a file name"):
        read_commented_json("a\0b.json")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_commented_json("x" * 5000)

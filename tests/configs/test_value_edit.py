"""Values set in the text of a config: the values change, the comments stay."""

import json

import pytest

from swinmr_profiling.configs import ConfigError
from swinmr_profiling.configs.commented_json import parse_commented_json
from swinmr_profiling.configs.value_edit import edit_values
from tests.conftest import REPOSITORY

VALUES = {"data.batch_size": 5, "training.accumulate": 3}


def test_a_shipped_config_changes_in_two_lines():
    text = (REPOSITORY / "configs/train_config_large.json").read_text()
    edited = edit_values(text, VALUES)
    before, after = text.splitlines(), edited.splitlines()
    assert [line for line in before if line not in after] == [
        '    "batch_size": 8,     // per device; "auto" takes the profile\'s recommendation'
    ]
    assert [line for line in after if line not in before] == [
        '    "batch_size": 5,     // per device; "auto" takes the profile\'s recommendation',
        '    "accumulate": 3,',
    ]
    # And once more, now that both keys are there.
    again = edit_values(edited, {"data.batch_size": 6, "training.accumulate": 4})
    assert again.count("accumulate") == 1
    assert parse_commented_json(again)["training"]["accumulate"] == 4


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        '{"data": {}}',
        '{"data": {"batch_size": "auto",}, }',
        '{"model": {"data": {"batch_size": 1}}, "data": {"x": "batch_size", "batch_size" /* 8 */ : 8}}',
        '{"model": [{"data": {"batch_size": 1}}, [2]], "data": {"batch_size": {"a": 1}}}',
        '{"a": "\\"data\\": {", "data": {"b": "// no comment", "batch_size": -1.5e3}}',
        '{ // {"data": {"batch_size": 7}}\n  /* "training": { */\n  "training": { // last\n  }\n}\n',
        '{"training":{"accumulate":[1, {"accumulate": 2}]}}',
        '{"d\\u0061ta": {"batch_size": 1}}',
    ],
)
def test_only_the_values_change(text):
    edited = edit_values(text, VALUES)
    expected = json.loads(json.dumps(parse_commented_json(text)))
    expected.setdefault("data", {})["batch_size"] = 5
    expected.setdefault("training", {})["accumulate"] = 3
    assert parse_commented_json(edited) == expected
    for comment in ("/* 8 */", '// {"data": {"batch_size": 7}}', "// last", '/* "training": { */'):
        assert (comment in text) == (comment in edited)


def test_windows_line_ends_stay():
    text = '{\r\n  "data": {\r\n    "val_batch_size": 1\r\n  }\r\n}\r\n'
    edited = edit_values(text, {"data.batch_size": 5})
    assert edited == '{\r\n  "data": {\r\n    "batch_size": 5,\r\n    "val_batch_size": 1\r\n  }\r\n}\r\n'


def test_a_section_that_is_no_object_is_refused():
    with pytest.raises(ConfigError, match=r"own.json: data: expected an object"):
        edit_values('{"data": 3}', VALUES, "own.json")


def test_broken_text_is_refused():
    with pytest.raises(ConfigError, match="broken JSON"):
        edit_values('{"data": {"batch_size": 3}', VALUES)

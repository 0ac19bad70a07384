"""Whatever a config file holds: a checked config, or ConfigError, which can be printed."""

import json
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from swinmr_profiling.configs import ConfigError, load_config
from swinmr_profiling.configs.commented_json import parse_commented_json
from tests.configs.test_imports import PUBLISHED as OPTION_FILE
from tests.conftest import REPOSITORY, TINY_SWINIR
from tests.properties.mutated_files import as_text, damaged, damaged_bytes, nearly

NATIVE_FILES = [file.read_text(encoding="utf-8") for file in sorted((REPOSITORY / "configs").glob("*.json"))]
NATIVE = [*(parse_commented_json(text) for text in NATIVE_FILES), {"model": TINY_SWINIR}]
OPTIONS = [parse_commented_json(OPTION_FILE)]


@pytest.fixture(scope="module")
def load(tmp_path_factory):
    file = tmp_path_factory.mktemp("configs") / "some.json"

    def read(content):
        file.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass"))
        for allow_unknown in (False, True):
            try:
                loaded = load_config(file, allow_unknown=allow_unknown)
            except ConfigError as error:
                str(error).encode("utf-8")  # it is printed
            else:
                # What was accepted can be handed to another process, and is accepted there.
                json.dumps(loaded.config.model_dump(mode="json"), allow_nan=False)
                assert loaded.file == Path(file)

    return read


@given(document=nearly(NATIVE))
def test_native_configs(load, document):
    load(as_text(document))


@pytest.mark.slow
@given(document=nearly(OPTIONS))
def test_option_files(load, document):
    load(as_text(document))


@pytest.mark.slow
@given(text=damaged([*NATIVE_FILES, OPTION_FILE]))
def test_damaged_text(load, text):
    load(text)


@given(content=damaged_bytes([text.encode() for text in NATIVE_FILES[:2]]))
def test_damaged_bytes(load, content):
    load(content)


@given(text=st.one_of(st.text(max_size=200), st.text(alphabet='{}[]",:/*\\ \n01e-.tfnu', max_size=80)))
@example(text="[" * 100_000)
@example(text='{"a": ' * 3000)
@example(text="9" * 5000)
def test_commented_json(text):
    try:
        value = parse_commented_json(text)
    except ConfigError as error:
        str(error).encode("utf-8")
    else:
        assert isinstance(value, dict)

"""Every number of a config is taken at the ends of the range that the guide promises, and refused just outside.

The ranges are read from the guide's words, which say them a second time beside the schema's constraints.
"""

import math
import re
from typing import Annotated

import pytest
from pydantic import ConfigDict, TypeAdapter, ValidationError

from swinmr_profiling.configs.error_report import expected_text
from swinmr_profiling.configs.field_types import Section
from swinmr_profiling.configs.schema import ExperimentConfig
from swinmr_profiling.configs.sections.model import MODEL_SECTIONS
from tests.configs.test_guide import guide_rows

NUMBER = r"(\d+)(?:\^(\d+))?(?: - (\d+))?"
BELOW_ZERO, BIGGEST = math.nextafter(0, -1), 1.7e308


def number(base: str, power: str | None, less: str | None) -> int:
    """ "10^9" is 1,000,000,000; "2^32 - 1" is 4,294,967,295."""
    return int(base) ** int(power or 1) - int(less or 0)


def ends(words: str) -> tuple[list[float], list[float]]:
    """(values that the words take, values that they refuse), the ones nearest to the ends of the range."""
    if found := re.search(rf"whole numbers?.*?, (?:each )?{NUMBER} to {NUMBER}", words):
        least, most = number(*found.groups()[:3]), number(*found.groups()[3:])
        return [least, most], [least - 1, most + 1, least + 0.5]
    if "above 0, at most 1" in words:
        return [5e-324, 1.0], [0.0, math.nextafter(1, 2)]
    if "above 0, below 1" in words:
        return [5e-324, math.nextafter(1, 0)], [0.0, 1.0]
    if "above 0" in words:
        return [5e-324, BIGGEST], [0.0]
    if "0 to below 1" in words:
        return [0.0, math.nextafter(1, 0)], [BELOW_ZERO, 1.0]
    if "0 to 1" in words:
        return [0.0, 1.0], [BELOW_ZERO, math.nextafter(1, 2)]
    if "0 or more" in words:
        return [0.0, BIGGEST], [BELOW_ZERO]
    if "1 or more" in words:
        return [1.0, BIGGEST], [math.nextafter(1, 0)]
    raise AssertionError(f"a range in words that this test does not know: {words}")


def is_a_number(words: str) -> bool:
    return bool(re.match(r"(list of (two )?)?(whole )?numbers?\b", words))


def number_fields() -> dict[str, tuple[type[Section], str, str]]:
    """Section.key -> the section, the key, the guide's words; of every key that takes a number or several."""
    found: dict[str, tuple[type[Section], str, str]] = {}
    guide = guide_rows()

    def walk(section: type[Section], heading: str, prefix: str) -> None:
        for key, info in section.model_fields.items():
            if info.discriminator:
                for net_type in MODEL_SECTIONS.keys() - {"swinmr"}:
                    walk(MODEL_SECTIONS[net_type], f"model with net_type {net_type}", "model.")
            elif isinstance(info.annotation, type) and issubclass(info.annotation, Section):
                walk(info.annotation, prefix + key, f"{prefix}{key}.")
            elif is_a_number(words := guide[heading, key][0]):
                assert words == expected_text(info)
                found[f"{section.__name__}.{key}"] = (section, key, words)

    walk(ExperimentConfig, "Top level", "")
    return found


FIELDS = number_fields()


def accepts(section: type[Section], key: str, value: object) -> bool:
    """Whether the key takes a value, whatever other keys say."""
    info = section.model_fields[key]
    kind = Annotated[(info.annotation, *info.metadata)] if info.metadata else info.annotation
    try:
        TypeAdapter(kind, config=ConfigDict(strict=True, allow_inf_nan=False)).validate_python(value)
    except ValidationError:
        return False
    return True


def as_the_words_say(value: float, words: str) -> object:
    if words.startswith("list of two"):
        return [value, 0.5]
    return [value] if words.startswith("list") else value


def test_the_walk_found_the_numbers_of_a_config():
    assert len(FIELDS) > 60
    assert {"DataSection.num_workers", "OptimizerSection.betas", "SwinIRModelConfig.depths"} <= FIELDS.keys()


@pytest.mark.parametrize("name", sorted(FIELDS))
def test_taken_at_the_ends_and_refused_outside(name):
    section, key, words = FIELDS[name]
    taken, refused = ends(words)
    for value in taken:
        assert accepts(section, key, as_the_words_say(value, words)), f"{value!r}: {words}"
    for value in [*refused, math.inf, math.nan, True, str(taken[0])]:
        assert not accepts(section, key, as_the_words_say(value, words)), f"{value!r}: {words}"
    assert accepts(section, key, None) == words.endswith("or null"), words

"""configs/README.md against the schema, both ways: every key, what it accepts, its default."""

import json
import re
from pathlib import Path

from swinmr_profiling.configs.error_report import expected_text
from swinmr_profiling.configs.field_types import Expected, Section
from swinmr_profiling.configs.schema import ExperimentConfig
from swinmr_profiling.configs.sections.model import MODEL_SECTIONS
from swinmr_profiling.configs.spellings import DROPPED, MOVED

GUIDE = (Path(__file__).resolve().parents[2] / "configs" / "README.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `([^`]+)` \| (.+?) \| (.+?) \| (.+?) \|$")


def guide_rows() -> dict[tuple[str, str], tuple[str, str, str]]:
    """(section heading, key) -> (value, default, meaning)."""
    rows: dict[tuple[str, str], tuple[str, str, str]] = {}
    heading, in_sections = "", False
    for line in GUIDE.splitlines():
        if line.startswith("## "):
            heading = line[3:].replace("`", "")
            in_sections = in_sections or heading == "Top level"
        elif in_sections and line.startswith("| `"):
            found = ROW.match(line)
            assert found, line
            assert (heading, found[1]) not in rows, f"{heading}.{found[1]} is described twice"
            rows[heading, found[1]] = (found[2], found[3], found[4])
    return rows


def schema_rows() -> dict[tuple[str, str], tuple[str, str, str]]:
    rows: dict[tuple[str, str], tuple[str, str, str]] = {}

    def walk(section: type[Section], heading: str, prefix: str) -> None:
        for key, info in section.model_fields.items():
            if info.discriminator:
                for net_type in MODEL_SECTIONS.keys() - {"swinmr"}:
                    walk(MODEL_SECTIONS[net_type], f"model with net_type {net_type}", "model.")
            elif isinstance(info.annotation, type) and issubclass(info.annotation, Section):
                walk(info.annotation, prefix + key, f"{prefix}{key}.")
            else:
                default = "required" if info.is_required() else f"`{json.dumps(info.get_default())}`"
                rows[heading, key] = (expected_text(info), default, info.description)

    walk(ExperimentConfig, "Top level", "")
    return rows


def test_the_guide_and_the_schema_have_the_same_keys_values_and_defaults():
    guide, schema = guide_rows(), schema_rows()
    assert len(schema) > 100  # the walk really went through the sections
    assert sorted(schema.keys() - guide.keys()) == [], "missing from configs/README.md"
    assert sorted(guide.keys() - schema.keys()) == [], "in configs/README.md, but not in the schema"
    assert guide == schema


def test_every_section_has_its_heading():
    headings = set(re.findall(r"^## (.+)$", GUIDE.replace("`", ""), re.MULTILINE))
    assert {
        "paths",
        "data",
        "training",
        "training.loss.components",
        "evaluation",
        "logging",
        "system",
    } <= headings


def test_every_plain_key_says_what_it_expects_and_what_it_means():
    def walk(section: type[Section]) -> None:
        for key, info in section.model_fields.items():
            assert info.description, f"{section.__name__}.{key}"
            if isinstance(info.annotation, type) and issubclass(info.annotation, Section):
                walk(info.annotation)
            elif not info.discriminator:
                assert any(isinstance(entry, Expected) for entry in info.metadata), (
                    f"{section.__name__}.{key}"
                )

    for section in {ExperimentConfig, *MODEL_SECTIONS.values()}:
        walk(section)


def test_the_guide_names_every_foreign_spelling():
    for path in [*MOVED, *MOVED.values(), *DROPPED]:
        assert f"`{path}`" in GUIDE

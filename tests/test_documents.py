"""Files and folders that the documents name exist, and so do the targets of their links."""

import re
from fnmatch import fnmatch
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
DOCUMENTS = (
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "SECURITY.md",
    *sorted(f"docs/{file.name}" for file in (REPOSITORY / "docs").glob("*.md")),
    "configs/README.md",
    "configs/pipelines/README.md",
    "results/README.md",
    "scripts/PROFILING_GUIDE.md",
)
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
QUOTED = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
# A path of this repository: a folder, or a file whose ending it has. Commands inside quotes name paths, too.
WORD = re.compile(
    r"(?<![\w./<-])((?:[\w.*-]+/)*[\w.*-]+(?:/|\.(?:py|json|md|toml|yaml|yml|cff|j2)))(?![\w/])"
)
# What programs write, what users have, what other projects have: named, and not here.
NOT_HERE = {
    "path/to/file.py": "a user's own",
    "step.py": "a user's own",
    "train_ESRGAN_x4.yml": "a user's own",
    "config.json": "of a published checkpoint",
    "outputs/": "written by generate_image.py",
    "profile_results.json": "written by profile_model.py",
    "summary.json": "written by test.py",
    "your_lora.json": "a user's own",
    "plan.json": "written by plan_training.py",
    "checkpointed_modules.json": "written by train.py beside its checkpoints",
    "bench.json": "written by profile_model.py --benchmark-json",
    "pass.json": "written by profile_model.py --trace",
    "A.json": "any profile",
    "B.json": "any profile",
    "benchmark.py": "of timm",
    "models/dncnn.py": "the network that CONTRIBUTING.md adds",
    "profiler/reports/latex_file.py": "the report that CONTRIBUTING.md adds",
}
# Written by runs, whatever its name.
WRITTEN = re.compile(r"(\.\./)?results/\w+\.json")


def words_of(text):
    """What in a document looks like the path of a file or a folder, in backticks or in shell commands."""
    blocks = [block for block in FENCED.findall(text) if block.startswith("```bash")]
    prose = FENCED.sub("", text)
    quoted = [*QUOTED.findall(prose), *blocks]
    return {word for piece in quoted for word in WORD.findall(piece)}


def is_here(word, places):
    """Whether a path, from the top or from some folder on, is one of the repository; `*` stands for any letters."""
    pattern = word.removeprefix("../").rstrip("/")
    return any(REPOSITORY.glob(pattern)) or any(fnmatch(place, f"*/{pattern}") for place in places)


def places_here():
    tops = ("scripts", "configs", "models", "profiler", "training", "tests", "src", "docs", ".ci", ".github")
    found = [
        place for top in tops for place in (REPOSITORY / top).rglob("*") if "__pycache__" not in place.parts
    ]
    return {place.relative_to(REPOSITORY).as_posix() for place in found}


def missing_paths(text):
    places = places_here()
    return sorted(
        word
        for word in words_of(text)
        if word not in NOT_HERE and not WRITTEN.fullmatch(word) and not is_here(word, places)
    )


def missing_links(text, folder):
    targets = {link.split("#")[0] for link in LINK.findall(FENCED.sub("", text))}
    return sorted(t for t in targets if t and "://" not in t and not (folder / t).exists())


@pytest.mark.parametrize("name", DOCUMENTS)
def test_what_a_document_names_is_here(name):
    document = REPOSITORY / name
    text = document.read_text(encoding="utf-8")
    assert missing_paths(text) == []
    assert missing_links(text, document.parent) == []


def test_the_readme_is_short_and_every_page_is_found():
    """Tables and dumps have pages of their own, which it or one of them names."""
    assert len((REPOSITORY / "README.md").read_text(encoding="utf-8").splitlines()) <= 250
    linked = set()
    for name in DOCUMENTS:
        document = REPOSITORY / name
        linked |= {(document.parent / link).resolve() for link in LINK.findall(document.read_text("utf-8"))}
    assert [page.name for page in (REPOSITORY / "docs").glob("*.md") if page.resolve() not in linked] == []


def test_a_path_that_is_not_here_is_found():
    text = """`profiler/gpus.py` and `scripts/profile_model.py`, [a page](docs/none.md#top), [a site](https://x.org/y.md)
`python scripts/no_command.py --config configs/none.json` reads `nobody.py`, `profiler/none/` and `profiler/record/`.

```bash
python scripts/profile_modell.py --config configs/train_config.json
```
"""
    assert missing_paths(text) == [
        "configs/none.json",
        "nobody.py",
        "profiler/gpus.py",
        "profiler/none/",
        "scripts/no_command.py",
        "scripts/profile_modell.py",
    ]
    assert missing_links(text, REPOSITORY) == ["docs/none.md"]


def test_the_documents_do_name_paths():
    found = set().union(*(words_of((REPOSITORY / name).read_text(encoding="utf-8")) for name in DOCUMENTS))
    assert len(found) > 60
    assert {
        "scripts/profile_model.py",
        "configs/train_config.json",
        "profiler/record/profile.schema.json",
    } <= found


def test_every_exception_is_needed():
    """A name that no document has any more, or that is a file here by now, is struck from the list."""
    found = set().union(*(words_of((REPOSITORY / name).read_text(encoding="utf-8")) for name in DOCUMENTS))
    assert sorted(NOT_HERE.keys() - found) == []
    assert [word for word in NOT_HERE if (REPOSITORY / word).exists()] == []

"""The files that a step's hash is of: its own, and what they import from its folders."""

import hashlib

import pytest

from swinmr_profiling.configs.own_step_source import source_files, source_sha256
from swinmr_profiling.configs.sections.training import TrainingSection

FILES = {
    "steps/step.py": "import torch, json\nimport losses\nfrom nets import wide\nfrom nets.deep import last as name\n",
    "steps/losses.py": "def late():\n    import late_one\n",
    "steps/late_one.py": "",
    "steps/nets/__init__.py": "",
    "steps/nets/wide.py": "from . import blocks\nfrom .deep.parts import part\n",
    "steps/nets/blocks.py": "from .. import above\n",  # beyond the top: no import of Python's
    "steps/nets/deep/__init__.py": "from ..more import x\n",
    "steps/nets/deep/last.py": "import step\n",  # in a circle
    "steps/nets/deep/parts.py": "def (:\n",
    "steps/nets/more.py": "x = 1\n",
    "steps/nets/unused.py": "",
    "steps/unused.py": "",
    "steps/json.txt": "",
}
USED = set(FILES) - {"steps/nets/unused.py", "steps/unused.py", "steps/json.txt"}


@pytest.fixture
def section(tmp_path, monkeypatch):
    for name, text in FILES.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return TrainingSection(step="step.py:Step", step_folder=str(tmp_path / "steps"))


def test_what_is_imported_from_its_folders_is_found(section):
    assert set(source_files(section)) == {name.removeprefix("steps/") for name in USED}


def test_every_file_that_is_imported_counts_and_no_other(section, tmp_path):
    before = source_sha256(section)
    for name, text in FILES.items():
        file = tmp_path / name
        file.write_text(text + "# edited\n")
        assert (source_sha256(section) != before) == (name in USED), name
        file.write_text(text)
    assert source_sha256(section) == before
    # A file that is exchanged for another's text, or takes its name, is an edit too.
    (tmp_path / "steps/nets/wide.py").write_text(FILES["steps/nets/blocks.py"])
    (tmp_path / "steps/nets/blocks.py").write_text(FILES["steps/nets/wide.py"])
    assert source_sha256(section) != before


def test_it_is_the_same_wherever_the_folder_lies(section, tmp_path, monkeypatch):
    before = source_sha256(section)
    (tmp_path / "steps").rename(tmp_path / "moved")
    moved = TrainingSection(step="step:Step", step_folder=str(tmp_path / "moved"))
    assert source_sha256(moved) == before
    monkeypatch.chdir(tmp_path / "moved")
    assert source_sha256(TrainingSection(step="step.py:Step")) == before
    monkeypatch.chdir(tmp_path)
    assert source_sha256(TrainingSection(step="moved/step.py:Step")) == before


def test_a_file_that_imports_nothing_of_its_own_has_its_own_hash(tmp_path):
    file = tmp_path / "alone.py"
    file.write_text("import torch\nfrom swinmr_profiling import models\nimport configs\n")
    section = TrainingSection(step="alone.py:Step", step_folder=str(tmp_path))
    assert source_sha256(section) == hashlib.sha256(file.read_bytes()).hexdigest()
    assert source_sha256(TrainingSection(step="none.py:Step", step_folder=str(tmp_path))) is None
    assert source_sha256(TrainingSection()) is None

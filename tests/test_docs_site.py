"""The site of the docs: every page is in it, every link of a page leads to a page or a file of it."""

import ast
import importlib.util
import re
import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY
from tests.test_documents import DOCUMENTS


def hook():
    spec = importlib.util.spec_from_file_location("site_files", REPOSITORY / "docs" / "site_files.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_document_and_what_it_links_to_is_in_the_site():
    files = {file.as_posix() for file in hook().site_files()}
    assert set(DOCUMENTS) <= files
    assert "docs/from_python.ipynb" in files  # a link's target that is no page
    assert not any(file.startswith("..") for file in files)
    navigation = (REPOSITORY / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    named = re.findall(r"[\w/]+\.md", navigation)
    assert set(named) <= files
    assert len(named) == len(set(named))


def test_the_api_names_what_the_package_offers_where_it_is_defined():
    """The site reads the code and does not import it: a name that a module only imports cannot be found there."""
    import swinmr_profiling

    named = re.findall(
        r"^::: ([\w.]+)$", (REPOSITORY / "docs/api.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert {name.rpartition(".")[2] for name in named} == set(swinmr_profiling.__all__)
    for module, _, name in (one.rpartition(".") for one in named):
        tree = ast.parse((REPOSITORY / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8"))
        assert name in {getattr(node, "name", None) for node in tree.body}, name


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path):
    pytest.importorskip("mkdocs")
    pytest.importorskip("mkdocstrings")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    run = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    for page in ("docs/reports", "configs", "scripts/PROFILING_GUIDE", "docs/api"):
        assert (tmp_path / "site" / page / "index.html").is_file()
    api = (tmp_path / "site" / "docs" / "api" / "index.html").read_text(encoding="utf-8")
    for name in ("predict_training", "summary", "count", "recommend", "OwnStepError"):
        assert f"{name}" in api
    # No font and no script from elsewhere.
    assert not re.findall(
        r'<(?:script|link)[^>]+(?:src|href)="https?://(?!github)[^"]+\.(?:js|css|woff2)', api
    )

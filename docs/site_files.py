"""Hook of mkdocs: the site has the repository's own tree, so that a link is the same there and on GitHub.

mkdocs takes pages from one folder, and the guides lie where their subjects do: configs/README.md beside the configs.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
PAGES = (
    "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "configs/README.md", "configs/pipelines/README.md",
    "scripts/PROFILING_GUIDE.md", "results/README.md", "docs/*.md",
)  # fmt: skip
LINK = re.compile(r"\]\(([^)\s#]+)")


def site_files(repository: Path = REPOSITORY) -> list[Path]:
    """The pages, and the files that they link to, relative to the repository."""
    pages = [file for pattern in PAGES for file in sorted(repository.glob(pattern))]
    found = dict.fromkeys(pages)
    for page in pages:
        for target in LINK.findall(page.read_text(encoding="utf-8")):
            file = (page.parent / target).resolve()
            if "://" not in target and file.is_file() and file.is_relative_to(repository):
                found[file] = None
    return [file.relative_to(repository) for file in found]


def on_files(files: Any, config: Any) -> Any:
    """Called by mkdocs with what it found in docs/; its theme's own files stay."""
    from mkdocs.structure.files import File, Files

    kept = [
        file for file in files if file.generated_by or not str(file.abs_src_path).startswith(config.docs_dir)
    ]
    own = [
        File.generated(config, name.as_posix(), abs_src_path=str(REPOSITORY / name)) for name in site_files()
    ]
    return Files([*kept, *own])

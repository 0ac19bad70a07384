"""Imported first by every command: takes the command's folder off sys.path, where Python puts it first.

With train.py that folder is the checkout: `import models` in the user's own network would find ours. With scripts/ it
holds a dozen modules that are nobody's to import. Nothing happens where a command is imported, not run.
"""

import sys
from pathlib import Path

from swinmr_profiling import CHECKOUT


def _own_folders() -> set[Path]:
    file = getattr(sys.modules["__main__"], "__file__", None)
    if file is None:
        return set()
    folder = Path(file).resolve().parent
    # The checkout as well: a PYTHONPATH that names it must not bring it back.
    return {folder, CHECKOUT} if CHECKOUT in (folder, folder.parent) else {folder}


_OWN = _own_folders()
sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() not in _OWN]

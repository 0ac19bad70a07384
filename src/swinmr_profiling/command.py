"""Imported first by every command: takes the command's folder off sys.path, where Python puts it first.

With train.py that folder is the checkout: `import models` in the user's own network would find ours. With scripts/ it
holds a dozen modules that are nobody's to import. Nothing happens where a command is imported, not run.
"""

import sys
from pathlib import Path

from swinmr_profiling import CHECKOUT

if CHECKOUT is not None:
    _COMMANDS = (CHECKOUT, CHECKOUT / "scripts")
    _RUN = getattr(sys.modules["__main__"], "__file__", None)
    if _RUN is not None and Path(_RUN).resolve().parent in _COMMANDS:
        # Wherever it stands: a PYTHONPATH that names the checkout must not bring it back.
        sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() not in _COMMANDS]

"""The rooms configs, models, profiler and training as one package, beside a user's own packages of these names.

Installed, the rooms lie in this package's folder. In a checkout they are the folders at its top; the folder above this
one holds nothing else, so with it on sys.path `import models` never finds ours.
"""

from pathlib import Path

_HERE = Path(__file__).resolve().parent
# The top folder of the checkout that this is, None where the package is installed.
CHECKOUT: Path | None = None if (_HERE / "models").is_dir() else _HERE.parent.parent
if CHECKOUT is not None:
    __path__.append(str(CHECKOUT))

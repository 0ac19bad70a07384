"""Commands and processes of this project as if packages were not installed, in forks that have them already.

A fork of the server in `tests/fork_server.py` has fvcore and thop imported, and so have its forks: they are forgotten
there, and are not found again.
"""

from pathlib import Path

from tests.conftest import REPOSITORY

FORGET = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {packages!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocker())
for name in [name for name in sys.modules if name.split(".")[0] in {packages!r}]:
    del sys.modules[name]
"""

COMMAND = """
import runpy
sys.path[0] = {folder!r}
sys.argv[0] = {script!r}
runpy.run_path({script!r}, run_name="__main__")
"""


def command_without(folder: Path, script: str, *packages: str) -> Path:
    """A file in the folder that runs a command of the checkout (`scripts/profile_model.py`) without packages."""
    whole = REPOSITORY / script
    file = folder / f"without_{'_'.join(packages)}.py"
    runs = COMMAND.format(folder=str(whole.parent), script=str(whole))
    file.write_text(FORGET.format(packages=packages) + runs)
    return file


def code_without(code: str, *packages: str) -> str:
    """Python code that runs without packages."""
    return FORGET.format(packages=packages) + code

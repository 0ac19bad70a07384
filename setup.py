"""Which packages are installed. Everything else is in pyproject.toml, which cannot put found packages into another."""

import sys
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "src"))
from swinmr_profiling.program import SUBCOMMANDS  # noqa: E402

PACKAGE = "swinmr_profiling"
ROOMS = ("configs", "models", "profiler", "training")
# What `swinmr-profile` runs: files at the top, and those of scripts/ that are no benchmark.
COMMANDS = {command.module for command in SUBCOMMANDS.values()}


class WithCommands(build_py):
    """Takes the commands into the package, as the modules that a checkout has by the same names."""

    def find_package_modules(self, package, package_dir):
        found = super().find_package_modules(package, package_dir)
        if package == PACKAGE:
            found += [(package, name, f"{name}.py") for name in COMMANDS if Path(f"{name}.py").is_file()]
        if package == f"{PACKAGE}.scripts":
            found = [module for module in found if f"scripts.{module[1]}" in COMMANDS]
        return found


found = find_packages(include=[pattern for room in ROOMS for pattern in (room, f"{room}.*")])
setup(
    packages=[PACKAGE, f"{PACKAGE}.scripts", *(f"{PACKAGE}.{name}" for name in found)],
    cmdclass={"build_py": WithCommands},
)

"""Which packages are installed. Everything else is in pyproject.toml, which cannot put found packages into another."""

from setuptools import find_packages, setup

PACKAGE = "swinmr_profiling"
ROOMS = ("configs", "models", "profiler", "training")

found = find_packages(include=[pattern for room in ROOMS for pattern in (room, f"{room}.*")])
setup(packages=[PACKAGE, *(f"{PACKAGE}.{name}" for name in found)])

"""`from profiler.compute import create_profiler` in a checkout: a room by its short name is the same modules again.

A room that Python finds as a top-level folder calls `stand_for`. Without it the room would be loaded a second time,
with a second set of classes.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

PACKAGE = "swinmr_profiling"


class ShortNames(MetaPathFinder, Loader):
    """Finds `room.module` as `swinmr_profiling.room.module`, for the rooms that were imported by their short name."""

    def __init__(self) -> None:
        self.rooms: set[str] = set()
        self._own_specs: dict[str, ModuleSpec | None] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        room, dot, _ = fullname.partition(".")
        return ModuleSpec(fullname, self) if dot and room in self.rooms else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(f"{PACKAGE}.{spec.name}")
        self._own_specs[spec.name] = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # The import system has just written the short name's spec over the module's own.
        written = module.__spec__
        assert written is not None
        module.__spec__ = self._own_specs.pop(written.name)


_finder = ShortNames()


def stand_for(room: str) -> None:
    """From now on `import room` gives the package's room, and `room.module` its modules."""
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    _finder.rooms.add(room)
    sys.modules[room] = import_module(f"{PACKAGE}.{room}")

"""Calls of a method on one object, seen by wrapping the method of its class for as long as somebody watches."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

# Told the object, and the function that makes the call and returns its result.
Around = Callable[[Any, tuple[Any, ...], dict[str, Any], Callable[[], Any]], Any]


class _Wrapped:
    """One method of one class, and who watches it."""

    def __init__(self, kind: type, name: str) -> None:
        self.watchers: list[tuple[Any, Around]] = []
        method = getattr(kind, name)

        @functools.wraps(method)
        def watched(one: Any, *args: Any, **kwargs: Any) -> Any:
            around = next((a for thing, a in reversed(self.watchers) if thing is one), None)
            if around is None:
                return method(one, *args, **kwargs)
            return around(one, args, kwargs, lambda: method(one, *args, **kwargs))

        self.patch = mock.patch.object(kind, name, watched)
        self.patch.start()


_lock = threading.Lock()
_wrapped: dict[tuple[type, str], _Wrapped] = {}


@contextmanager
def watched_method(thing: Any, name: str, around: Around) -> Iterator[None]:
    """Calls of `thing.name(...)` go through `around`; a class that cannot be written to is not watched."""
    key = (type(thing), name)
    entry = (thing, around)
    with _lock:
        try:
            if key not in _wrapped:
                _wrapped[key] = _Wrapped(*key)
            _wrapped[key].watchers.append(entry)
        except (AttributeError, TypeError):
            entry = None  # type: ignore[assignment]
    try:
        yield
    finally:
        with _lock:
            if entry is not None:
                watchers = _wrapped[key].watchers
                watchers[:] = [one for one in watchers if one is not entry]
                if not watchers:
                    _wrapped.pop(key).patch.stop()

"""Strategies: JSON that is nearly a valid file, text and bytes that are nearly so, and junk."""

import copy
import json
import random

from hypothesis import strategies as st

# What a person, another program or an attacker puts in the place of a value.
ODD_VALUES = [
    None, True, False, 0, -1, 1, 2, 7, 64, 2**31, 2**63, 2**64, -(2**63), 10**30, 0.5, -0.0, 1e-300, 1e308, -1e308,
    "", " ", "auto", "none", "null", "1", "-1", "1e308", "nan", "\u0000", "\u001b[31m", "\U0001f9e0", "a" * 3000,
    "../../etc/passwd", "/dev/null", "~", "C:\\x", "=1+1", "0x10", "true", [], [[]], {}, [None], [0], [-1],
    [1, 2, 3], [1e308], ["a"], {"": None}, {"a": {"b": []}}, [[[[[[[[1]]]]]]]], {"__class__": "x"}, [2**40, 2**40],
    "swinir", "timm",
]  # fmt: skip
JUNK = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(max_size=20),
        st.sampled_from(ODD_VALUES),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=10), inner, max_size=4)
    ),
    max_leaves=12,
)


PIECES = [*'{}[],:"\\/*\n0-e.', "//", "/*", "*/", "NaN"]


def places(value, path=()):
    """Paths of all values in a JSON document, the document's own first."""
    found = [path]
    entries = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, inner in entries:
        found += places(inner, (*path, key))
    return found


def at(document, path):
    for key in path:
        document = document[key]
    return document


@st.composite
def nearly(draw, documents):
    """One of the valid documents with one to four values replaced, removed, added, moved or wrapped."""
    document = json.loads(json.dumps(draw(st.sampled_from(documents))))
    for _ in range(draw(st.integers(1, 4))):
        candidates = [path for path in places(document) if path]
        if not candidates:
            break
        path = draw(st.sampled_from(candidates))
        parent, key = at(document, path[:-1]), path[-1]
        action = draw(
            st.sampled_from(("odd", "odd", "junk", "remove", "add", "swap", "wrap", "deep", "scale"))
        )
        # Copied: what is put in may be changed by the next action, and is the same for every example otherwise.
        if action == "odd":
            parent[key] = copy.deepcopy(draw(st.sampled_from(ODD_VALUES)))
        elif action == "junk":
            parent[key] = copy.deepcopy(draw(JUNK))
        elif action == "remove":
            del parent[key]
        elif action == "add" and isinstance(parent, dict):
            name = draw(st.sampled_from(["", "x", str(key) + "s", "config", "1", "training", "//"]))
            parent[name] = copy.deepcopy(draw(JUNK))
        elif action == "add":
            parent.insert(0, copy.deepcopy(draw(st.sampled_from(ODD_VALUES))))
        elif action == "swap":
            other = draw(st.sampled_from(candidates))
            try:
                parent[key] = json.loads(json.dumps(at(document, other)))
            except (KeyError, IndexError, TypeError):
                continue
        elif action == "wrap":
            parent[key] = [parent[key]]
        elif action == "deep":
            for _ in range(draw(st.sampled_from([3, 70, 200]))):
                parent[key] = {"a": parent[key]} if draw(st.booleans()) else [parent[key]]
                if len(places(parent[key])) > 400:
                    break
        elif isinstance(parent[key], (int, float)):
            parent[key] = parent[key] * draw(st.sampled_from([-1, 0, 2, 1000, 1e9, 1e300, 0.1]))
    return document


def as_text(document):
    """JSON text, with Infinity and NaN as Python writes them, and lone surrogates escaped."""
    return json.dumps(document, allow_nan=True)


@st.composite
def damaged(draw, texts):
    """One of the texts with pieces cut, doubled, moved or overwritten."""
    text = draw(st.sampled_from(texts))
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(text)))
        length = draw(st.sampled_from([0, 1, 2, 8, 100]))
        piece = text[start : start + length]
        action = draw(st.sampled_from(("cut", "double", "insert", "end", "many")))
        if action == "cut":
            text = text[:start] + text[start + length :]
        elif action == "double":
            text = text[:start] + piece * 2 + text[start + length :]
        elif action == "insert":
            new = draw(st.one_of(st.text(max_size=8), st.sampled_from(PIECES)))
            text = text[:start] + new + text[start:]
        elif action == "end":
            text = text[:start]
        else:
            text = (
                text[:start]
                + draw(st.sampled_from(["[", "{", '{"a":', "9", " ", "/*", "\\"])) * 1200
                + text[start:]
            )
    return text


@st.composite
def damaged_bytes(draw, contents):
    """One of the contents with bytes flipped, cut, doubled: what a bad disk or a stopped copy leaves."""
    content = bytearray(draw(st.sampled_from(contents)))
    rng = random.Random(draw(st.integers(0, 2**32)))
    for _ in range(draw(st.integers(1, 6))):
        if not content:
            break
        start = rng.randrange(len(content))
        action = draw(st.sampled_from(("flip", "flip", "cut", "end", "insert", "zero")))
        if action == "flip":
            content[start] ^= 1 << rng.randrange(8)
        elif action == "cut":
            del content[start : start + rng.choice([1, 16, 512])]
        elif action == "end":
            del content[start:]
        elif action == "insert":
            content[start:start] = rng.randbytes(rng.choice([1, 16, 512]))
        else:
            length = min(rng.choice([1, 16, 512]), len(content) - start)
            content[start : start + length] = bytes(length)
    return bytes(content)

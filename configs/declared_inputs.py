"""The inputs of a network as a config declares them: tensors of any type, by place or name, in lists and objects.

A shape alone, `[1, 256, 256]`, is without the batch, which comes first. An object says more:
`{"shape": ["B", 1, 256, 256], "dtype": "complex64", "range": [-1, 1]}`, where "B" is the axis of the batch; a shape
without it does not grow with the batch. `{"constant": 25}` is a value that is no tensor. Anything else that is an
object or a list holds further inputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

BATCH = "B"
FLOATS = ("float", "float16", "bfloat16", "float32", "float64")
COMPLEX = ("complex", "complex64", "complex128")
WHOLE = ("int64", "int32", "int16", "int8", "uint8")
DTYPES = (*FLOATS, *COMPLEX, *WHOLE, "bool")
KEYS = ("name", "shape", "dtype", "range", "as_list", "rows_per_sample")
CONSTANT_KEYS = ("constant", "per_sample")
MAX_AXES, MAX_LENGTH, MAX_DEPTH = 8, 2**31, 8


@dataclass(frozen=True)
class DeclaredTensor:
    """shape: without the batch. batch_axis: where that stands in the whole shape, None for an input without one.

    dtype: one of DTYPES; "float" and "complex" follow the precision of the run. value_range: [low, high) of real
    numbers and of each part of complex ones, both ends of whole numbers; None for [0, 1). as_list: the network gets a
    list of the samples' tensors. rows_per_sample: how many rows of the batch's axis are of one sample.
    """

    shape: tuple[int, ...]
    batch_axis: int | None = 0
    dtype: str = "float"
    value_range: tuple[float, float] | None = None
    as_list: bool = False
    rows_per_sample: int = 1


@dataclass(frozen=True)
class DeclaredConstant:
    """A value that is no tensor. per_sample: the network gets a list of it, once for each sample."""

    value: Any
    per_sample: bool = False


Declared = DeclaredTensor | DeclaredConstant | list["Declared"] | dict[str, "Declared"]


class InputsError(ValueError):
    """What is wrong with a declaration: the path below `inputs`, and what to do."""

    def __init__(self, path: str, text: str) -> None:
        super().__init__(f"{path}: {text}" if path else text)
        self.path, self.text = path, text


@dataclass(frozen=True)
class DeclaredInputs:
    """positional and keyword arguments of `forward`."""

    args: tuple[Declared, ...]
    kwargs: dict[str, Declared]


def read_inputs(value: dict[str, Any] | list[Any]) -> DeclaredInputs:
    """An object holds keyword inputs by name; a list positional ones, and keyword ones that give a `name`.

    Raises:
        InputsError: for what is not a declaration.
    """
    if isinstance(value, dict):
        kwargs = {name: read_declared(item, name) for name, item in value.items()}
        return DeclaredInputs((), kwargs)
    args: list[Declared] = []
    kwargs = {}
    for place, item in enumerate(value):
        name = item.get("name") if isinstance(item, dict) and "shape" in item else None
        declared = read_declared(item, str(place))
        if name is None:
            if kwargs:
                raise InputsError(
                    str(place), "an input without a name stands behind one with a name: put it before"
                )
            args.append(declared)
        elif name in kwargs:
            raise InputsError(str(place), f"a second input {name!r}")
        else:
            kwargs[name] = declared
    return DeclaredInputs(tuple(args), kwargs)


def read_declared(value: Any, path: str = "", depth: int = 0) -> Declared:
    """One input, or the inputs in a list or an object."""
    if depth > MAX_DEPTH:
        raise InputsError(path, f"more than {MAX_DEPTH} levels")
    if isinstance(value, list):
        if all(_is_length(item) or item == BATCH for item in value):
            shape, batch_axis = _shape(value, path)
            return DeclaredTensor(shape, 0 if batch_axis is None else batch_axis)
        return [read_declared(item, f"{path}.{place}", depth + 1) for place, item in enumerate(value)]
    if not isinstance(value, dict):
        raise InputsError(
            path, f"expected a shape, an object with a shape, or a list or object of them, got {value!r}"
        )
    if "constant" in value and all(key in CONSTANT_KEYS for key in value):
        return DeclaredConstant(value["constant"], _flag(value, "per_sample", path))
    if "shape" not in value:
        return {str(name): read_declared(item, f"{path}.{name}", depth + 1) for name, item in value.items()}
    unknown = next((key for key in value if key not in KEYS), None)
    name, given = value.get("name", ""), value["shape"]
    for is_wrong, text in (
        (unknown is not None, f"unknown key {unknown!r} (known: {', '.join(KEYS)})"),
        (not isinstance(name, str), "name: expected text"),
        (
            not isinstance(given, list),
            f'shape: expected a list such as ["B", 1, 256, 256], got {given!r}',
        ),
    ):
        if is_wrong:
            raise InputsError(path, text)
    shape, batch_axis = _shape(given, path)
    dtype, rows = value.get("dtype", "float"), value.get("rows_per_sample", 1)
    if dtype not in DTYPES:
        raise InputsError(path, f"dtype: expected one of {', '.join(DTYPES)}, got {dtype!r}")
    if not _is_length(rows) or not 1 <= rows <= MAX_LENGTH:
        raise InputsError(path, f"rows_per_sample: expected a whole number from 1 on, got {rows!r}")
    as_list = _flag(value, "as_list", path)
    if batch_axis is None and (as_list or rows != 1):
        raise InputsError(
            path, 'as_list and rows_per_sample are of the axis of the batch: put "B" into shape'
        )
    return DeclaredTensor(shape, batch_axis, dtype, _range(value.get("range"), dtype, path), as_list, rows)


def _flag(value: dict[str, Any], key: str, path: str) -> bool:
    given = value.get(key, False)
    if not isinstance(given, bool):
        raise InputsError(path, f"{key}: expected true or false, got {given!r}")
    return given


def _is_length(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _shape(value: list[Any], path: str) -> tuple[tuple[int, ...], int | None]:
    lengths = [item for item in value if item != BATCH]
    if any(not _is_length(item) or not 1 <= item <= MAX_LENGTH for item in lengths):
        raise InputsError(
            path, f'shape: expected whole numbers from 1 on and "B" for the batch, got {value!r}'
        )
    if len(value) > MAX_AXES or len(value) - len(lengths) > 1:
        raise InputsError(path, f'shape: at most {MAX_AXES} axes, and "B" once, got {value!r}')
    return tuple(lengths), value.index(BATCH) if BATCH in value else None


def _range(value: Any, dtype: str, path: str) -> tuple[float, float] | None:
    if value is None:
        return None
    numbers = isinstance(value, list) and all(
        isinstance(n, (int, float)) and not isinstance(n, bool) for n in value
    )
    if not numbers or len(value) != 2 or not float("-inf") < value[0] <= value[1] < float("inf"):
        raise InputsError(path, f"range: expected [lowest, highest], got {value!r}")
    if dtype == "bool" or (dtype in WHOLE and any(n != int(n) for n in value)):
        raise InputsError(
            path, f"range: {dtype} takes {'none' if dtype == 'bool' else 'whole numbers'}, got {value!r}"
        )
    if dtype in WHOLE:
        bits = int(dtype.lstrip("uint"))
        lowest, highest = (0, 2**bits - 1) if dtype[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        if value[0] < lowest or value[1] > highest:
            raise InputsError(path, f"range: {dtype} holds {lowest} to {highest}, got {value!r}")
    return float(value[0]), float(value[1])

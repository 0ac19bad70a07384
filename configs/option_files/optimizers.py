"""Optimizers of option files by the name that a framework has for them."""

from __future__ import annotations

from typing import Any

from swinmr_profiling.configs.option_files.imported import ImportedOptions, is_number, number

# Their names, in lower case and without underscores and hyphens.
_OURS = {
    "adam": "adam",
    "adamw": "adamw",
    "sgd": "sgd",
    "adafactor": "adafactor",
    "muon": "muon",
    "adam8bit": "adam_8bit",
    "adamw8bit": "adamw_8bit",
}
# Numbers that others keep of each parameter between steps, read from neosr's and traiNNer-redux' code.
_STATE = {
    "nadam": 2,
    "stableadamw": 2,
    "adopt": 2,
    "adamwsf": 2,
    "adamwschedulefree": 2,
    "adamwwin": 3,
    "adan": 4,
    "adansf": 5,
}
STAND_IN, STAND_IN_STATE = "adamw", 2
BYTES = 4


def known_optimizer(given: Any) -> str | None:
    """`training.optimizer.type` of a framework's name; None where there is no such optimizer here."""
    return _OURS.get(_plain(given))


def stand_in_note(origin: str, given: Any) -> str:
    """What AdamW in the place of another optimizer leaves out, in a line."""
    state = _STATE.get(_plain(given))
    if state is None:
        rest = f"; {given}'s own state is not in the prediction"
    elif state == STAND_IN_STATE:
        rest = f", as is that of {given}"
    else:
        more = (state - STAND_IN_STATE) * BYTES
        rest = f"; {given} keeps {state}: {more} bytes a parameter more than is predicted"
    stand_in = f"AdamW stands in, whose state is {STAND_IN_STATE} numbers a parameter"
    return f"{origin} {given} has no counterpart: {stand_in}{rest}"


def map_optimizer(section: Any, result: ImportedOptions) -> None:
    """`train.optim_g` of BasicSR and its kin."""
    if not isinstance(section, dict):
        return
    given = section.get("type")
    kind = known_optimizer(given)
    origin = "train.optim_g"
    if kind is None and given is not None:
        result.messages.append(stand_in_note(f"{origin}.type", given))
    result.put("training.optimizer.type", kind or STAND_IN, f"{origin}.type")
    for key in ("lr", "weight_decay"):
        result.put_given(f"training.optimizer.{key}", number(section.get(key)), f"{origin}.{key}")
    betas = section.get("betas")
    if isinstance(betas, list) and len(betas) == 2:
        result.put("training.optimizer.betas", [number(beta) for beta in betas], f"{origin}.betas")
    if kind in ("sgd", "muon") and is_number(section.get("momentum")):
        result.put("training.optimizer.momentum", float(section["momentum"]), f"{origin}.momentum")


def _plain(given: Any) -> str:
    return str(given).lower().replace("_", "").replace("-", "")

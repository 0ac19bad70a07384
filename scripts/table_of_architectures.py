#!/usr/bin/env python3
"""Writes docs/architectures.md: every network of spandrel with random weights, saved and found as `--checkpoint` does.

    python scripts/table_of_architectures.py [--only NAME,NAME]

Each is built at its class's own defaults (or those of TINY, where these take minutes), its state dict is saved, and the
network is found again from the file alone. A row compares its parameters with those of the module that was saved, its
MACs with torch's FlopCounterMode / 2, and says whether the memory of its training step could be predicted. Rows that
the page holds already, of the same spandrel and torch, are not made again.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY / "src"))

import torch  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

import swinmr_profiling.command  # noqa: E402 - takes this folder off sys.path
from swinmr_profiling.configs import config_from_dict  # noqa: E402
from swinmr_profiling.configs.error_words import one_line  # noqa: E402
from swinmr_profiling.models.checkpoints.checkpoint_network import found_network  # noqa: E402
from swinmr_profiling.models.libraries.spandrel_network import architecture_names, architecture_of, made  # noqa: E402
from swinmr_profiling.models.registry import build_model  # noqa: E402
from swinmr_profiling.profiler.counting import count_forward  # noqa: E402
from swinmr_profiling.profiler.prediction.trace.traced_step import trace_training  # noqa: E402
from swinmr_profiling.scripts.counter_cases.flop_counter import differences, macs_by_operator  # noqa: E402

TABLE = REPOSITORY / "docs" / "architectures.md"
BATCH = 2
SIDE = 64
# Sizes that are not the class's own defaults: those need an upsampler to fit their scale, or are made in minutes.
CHOSEN: dict[str, dict] = {
    "ATD": {"upscale": 2, "upsampler": "pixelshuffle"},
    "DRCT": {"upscale": 2, "upsampler": "pixelshuffle", "depths": [2, 2], "num_heads": [6, 6]},
    "GRL": {
        "upscale": 2, "upsampler": "pixelshuffle", "depths": [2, 2], "num_heads_window": [3, 3],
        "num_heads_stripe": [3, 3],
    },
    "HAT": {"upscale": 2, "window_size": 16, "depths": [2, 2], "num_heads": [6, 6], "overlap_ratio": 0.5},
    "Swin2SR": {"upscale": 2, "upsampler": "pixelshuffle", "window_size": 8},
    "SwinIR": {"upscale": 2, "upsampler": "pixelshuffle", "window_size": 8},
    "NAFNet": {"width": 32, "middle_blk_num": 2, "enc_blk_nums": [1, 1], "dec_blk_nums": [1, 1]},
    "AuraSR": {"dim": 16, "image_size": 64, "input_image_size": 16},
    "IPT": {"num_layers": 2},
}  # fmt: skip


def row_of(name: str, file: Path) -> dict:
    """One row: what was found in the file, and how it compares."""
    kwargs = CHOSEN.get(name, {})
    module = made(name, kwargs).module
    parameters = sum(p.numel() for p in module.parameters())
    torch.save(module.state_dict(), file)
    del module
    found = found_network(file)
    config = _at_small_size(found.section)
    built = build_model(config)
    ours = count_forward(built.module.eval(), built.example_inputs(1))
    # torch's own count is made on data, as its formulas want.
    with torch.no_grad(), FlopCounterMode(display=False) as theirs:
        built.module(*built.example_inputs(1))
    try:
        trace_training(built, config, BATCH, validation=False)
        prediction = "made"
    except Exception as error:  # a network may raise anything
        prediction = one_line(error, 90).replace("|", "/")
    return {
        "name": name,
        "found": found.section["net_type"]
        if found.section["net_type"] == "swinir"
        else found.words.split(" ")[0],
        "input": list(built.inputs["inference"][0].shape),
        "parameters": sum(p.numel() for p in built.module.parameters()),
        "saved_parameters": parameters,
        "macs": ours.macs,
        "flop_counter": theirs.get_total_flops() // 2,
        "gap": differences(ours.by_operator, macs_by_operator(theirs)),
        "prediction": prediction,
    }


def _at_small_size(section: dict):
    """The smallest size from SIDE on that the network takes: the refusal names it."""
    side: int | list[int] = SIDE
    for _ in range(3):
        try:
            config = config_from_dict(
                {"model": {**section, "img_size": side}, "data": {"use_patches": False}}
            )
            build_model(config)
            return config
        except ValueError as error:
            size = str(error).rpartition("next such size is ")[2]
            if not size:
                raise
            side = [int(number) for number in size.split(" x ")]
    return config


def _versions() -> str:
    import spandrel

    return f"spandrel {spandrel.__version__}, torch {torch.__version__.partition('+')[0]}: "


HEADER = "| network | found as | input | parameters | MACs | FlopCounterMode / 2 | difference by operator | training |"


def table(rows: list[dict]) -> str:
    """The page."""
    equal = sum(row["macs"] == row["flop_counter"] for row in rows)
    predicted = sum(row["prediction"] == "made" for row in rows)
    architectures = {architecture_of(name) for name in architecture_names()}
    made_of = {architecture_of(row["name"]) for row in rows}
    missing = sorted(architectures - made_of, key=str.lower)
    lines = [
        "# Restoration networks that are found from their weights",
        "",
        f"{_versions()}{len(rows)} networks, of {len(made_of)} of spandrel's {len(architectures)} architectures"
        + (f" (not of {', '.join(missing)})" if missing else "")
        + ", random weights, each saved and found again from the file (`profile_model.py --checkpoint`). "
        f"{equal} of them have the MACs of torch's FlopCounterMode / 2 to the unit; the memory of training is "
        f"predicted for {predicted}. Made by `scripts/table_of_architectures.py`.",
        "",
        "A difference is what torch's counter leaves out, by operator: it has no formula for the fused attention of "
        "CPUs, counted here as the two products that it is. One more and one less is a product by two names.",
        "",
        HEADER,
        "| --- | --- | --- | ---: | ---: | ---: | --- | --- |",
    ]
    for row in rows:
        saved = (
            "" if row["parameters"] == row["saved_parameters"] else f" (saved: {row['saved_parameters']:,})"
        )
        gap = ", ".join(f"{key} {count:+,}" for key, count in row["gap"].items()) or "none"
        lines.append(
            f"| {row['name']} | {row['found']} | {' x '.join(map(str, row['input']))} | {row['parameters']:,}{saved} | "
            f"{row['macs']:,} | {row['flop_counter']:,} | {gap} | {row['prediction']} |"
        )
    return "\n".join([*lines, ""])


def rows_of(page: str) -> dict[str, dict]:
    """The rows of a page by network, as `table` has them; none of a page of other versions."""
    if _versions() not in page:
        return {}
    rows = {}
    for line in page.partition(HEADER)[2].splitlines()[2:]:
        name, found, size, parameters, macs, theirs, gap, prediction = line.strip("| ").split(" | ")
        counts = [_number(text) for text in re.findall(r"[\d,]+", parameters)]
        rows[name] = {
            "name": name,
            "found": found,
            "input": [int(side) for side in size.split(" x ")],
            "parameters": counts[0],
            "saved_parameters": counts[-1],
            "macs": _number(macs),
            "flop_counter": _number(theirs),
            "gap": {key: _number(count) for key, count in re.findall(r"(\S+) ([+-][\d,]*\d)", gap)},
            "prediction": prediction,
        }
    return rows


def _number(text: str) -> int:
    return int(text.replace(",", ""))


@swinmr_profiling.command.entry_point
def main(arguments: list[str]) -> int:
    """Makes the rows that are missing, then the page."""
    parser = argparse.ArgumentParser(description="Write docs/architectures.md.")
    parser.add_argument("--only", default="")
    parsed = parser.parse_args(arguments)
    rows = rows_of(TABLE.read_text(encoding="utf-8")) if TABLE.is_file() else {}
    names = [name for name in parsed.only.split(",") if name] or architecture_names()
    for name in names:
        if name in rows:
            continue
        print(name, flush=True)
        torch.manual_seed(0)
        with tempfile.TemporaryDirectory() as folder:
            try:
                rows[name] = row_of(name, Path(folder) / "model.pth")
            except Exception as error:  # told, and the others are made
                print(f"  {name}: {type(error).__name__}: {str(error)[:300]}", flush=True)
                continue
        # After each row: whatever ends the command, the page has what was made.
        _write(rows)
    _write(rows)
    return 0


def _write(rows: dict[str, dict]) -> None:
    TABLE.write_text(table([rows[name] for name in sorted(rows, key=str.lower)]), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())

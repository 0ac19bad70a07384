"""docs/public_records.md: every row of the benchmark of public records, written from what the command found."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from swinmr_profiling.scripts.public_records.record_table import LADDER, Record, table

MIB = 2**20
HEAD = """# Predictions held against public measurements of GPUs
Written by `python scripts/benchmark_public_records.py --page docs/public_records.md`; not run by us on a GPU. The
records are other people's ([sources](../results/reference/public_records/README.md)), half of each table; what was
predicted for each row is in `results/reference/public_records/predicted.jsonl`. A network counts where a package builds
it with the record's number of parameters.

"""
KNOWN = """
## What is known of those that are off
- HAT (all sizes): it made its attention mask in fp32 when the table was measured, 150 MiB more.
- DCTLSA in channels-last: 102 to 104 MB more than live bytes, at a 1 x 1 convolution of 330 to 55 channels: three times
  its output, or its output in fp32 and once more in bf16. One network is not a rule.
- Small networks, by up to 4 MiB: ends of blocks that the allocator does not split, which depend on the cache that the
  networks before left behind.
- EfficientNets, FBNetV3-G and RegNetX-032 with the next batch of the ladder, which did not run, need 0.8 to 2.8 % less
  than the 22,950 MiB that were taken for the RTX 3090's limit before; ResNet-50 ran with 3.0 % less. The limit is
  22,280 MiB since: the brackets that chose it cannot show that it was foretold.
- TResNets had in-place batch norm in 2022 (`inplace_abn`), which today's timm has not: less memory then than now.
- BiT-M ResNets at 448, the EvoNorm ResNetV2, CS3DarkNet-L in NCHW and PiT-S distilled: the next batch did not run, and
  is predicted to need 8 to more than 10 % less than the limit. Not explained. HRNets, VGG-13, ConvNeXt-XL and
  BiT-M ResNet-152x4 are predicted 0.5 to 2 % too high.
"""
INFERENCE = """## {group}
`max_memory_allocated` of 1 x 3 x 480 x 640 under autocast, MiB. Operator: what runs at the predicted peak.

| network | published | predicted | deviation | interval | inside | operator |
| --- | ---: | ---: | ---: | --- | --- | --- |
"""
TRAINING = """## {group}
The largest batch of the ladder ({ladder}) that trained in 24 GiB. "exact": that batch is predicted
to fit and the next of the ladder is not. "by": how far, at least, the prediction is from the right verdict (below 0:
too low).

| network, side | ran | it is predicted to | the next is predicted to | verdict | by |
| --- | ---: | --- | --- | --- | ---: |
"""


def page(rows: Iterable[Mapping[str, Any]], records: Iterable[Record]) -> str:
    """Markdown. rows: as `record_table.predict` makes them. records: all that there are, tried or not."""
    by_group: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    total: Counter[str] = Counter()
    for row in sorted(rows, key=lambda row: row["key"]):
        by_group[row["group"]].append(row)
    for record in records:
        total[record.group] += 1
    tried = [row for found in by_group.values() for row in found]
    held = sum(row["status"] == "predicted" for row in tried)
    counts = "; ".join(f"{group}: {len(by_group[group])} of {total[group]}" for group in sorted(total))
    parts = [
        HEAD,
        f"**{len(tried)} of {sum(total.values())} records were tried** ({counts}), in an order drawn by chance; {held} "
        "could be predicted.\n\n",
        table(tried),
        "\n",
    ]
    for group in sorted(total):
        good = [row for row in by_group[group] if row["status"] == "predicted"]
        if not good:
            parts.append(f"\n## {group}\nNone was predicted.\n")
        elif group.startswith("inference"):
            parts += ["\n" + INFERENCE.format(group=group), *map(_inference, good)]
        else:
            ladder = ", ".join(map(str, LADDER[:6])) + ", ..., 1"
            parts += ["\n" + TRAINING.format(group=group, ladder=ladder), *map(_training, good)]
    return "".join([*parts, KNOWN, *_left_out(tried)])


def _inference(row: Mapping[str, Any]) -> str:
    name = " ".join(word for word in (row["name"], row["variant"], f"x{row['scale_or_size']}") if word)
    low, high = (f"{size / MIB:,.1f}" for size in row["interval"])
    return (
        f"| {name} | {row['published'] / MIB:,.1f} | {row['predicted'] / MIB:,.1f} | {row['deviation']:+.2%} | "
        f"{low} to {high} | {'yes' if row['inside'] else '**no**'} | {row['operator']} |\n"
    )


def _training(row: Mapping[str, Any]) -> str:
    by = row.get("misses_by")
    verdict = row["verdict"] if row["verdict"] == "exact" else f"**{row['verdict']}**"
    return (
        f"| {row['name']}, {row['scale_or_size']} | {row['published']} | {row['ran']} | "
        f"{row['above'] or '(no larger one was tried)'} | {verdict} | {'' if by is None else f'{by:+.1%}'} |\n"
    )


def _left_out(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Networks that no package makes as the record's was, and those that cannot be traced, by reason."""
    parts = []
    for status, title in (("not buildable", "Not buildable"), ("not traceable", "Not traceable")):
        names = defaultdict(set)
        for row in rows:
            if row["status"] == status:
                names[row["reason"]].add(row["name"])
        parts.append(f"\n## {title}\n")
        parts += [f"- {', '.join(sorted(names[reason]))}: {reason}\n" for reason in sorted(names)]
        if not names:
            parts.append("None of those that were tried.\n")
    return parts

"""docs/public_records.md: every row of the benchmark of public records, written from what the command found."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from swinmr_profiling.scripts.public_records.record_table import LADDER, LAYOUTS, Record, table

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
- DCTLSA in channels-last: beyond live bytes and what its NCHW row has beyond them, three of the four scales take
  exactly 101,376,512 bytes more, the fourth 0.2 MB more than that: three times the output of its 1 x 1 convolution of
  330 to 55 channels, and one block of 512. Those channels are no multiple of 8, as tensor cores read NHWC. One network
  is not a rule.
- Small networks, by up to 4 MiB: ends of blocks that the allocator does not split, which depend on the cache that the
  networks before left behind.
- EfficientNets, FBNetV3-G and RegNetX-032 with the next batch of the ladder, which did not run, need 0.8 to 2.8 % less
  than the 22,950 MiB that were taken for the RTX 3090's limit before; ResNet-50 ran with 3.0 % less. The limit is
  22,280 MiB since: the brackets that chose it cannot show that it was foretold.
- TResNets had in-place batch norm in 2022 (`inplace_abn`), which today's timm has not: less memory then than now.
- Too careful, by 0.2 to 3 % (HRNets, VGG-13, XCiTs, ConvNeXt-XL, ViT-L/14, ECA- and CSPResNet-50): the limit is ours.
  CSPResNet-50 ran with 22,370 MiB alive in NCHW, more than the 22,280 that are taken for all. Of 849 batches of
  networks near the limit (TResNets and BiT-M of width 1 apart), 17 are predicted too careful and 13 too bold; 22,480
  MiB would make that 7 and 16, with VGG-13 among the 7 still. The lower limit errs on the safe side.
- Too bold in NCHW, except PiT-S and BiT-M: networks of the next section, which ran that very batch in channels-last,
  with the same bytes alive to within 8 MiB. Live bytes alone cannot explain both: CS3SEDarkNet-L ran 384 images in NCHW
  with 21,590 MiB alive, CS3DarkNet-L with 19,916 did not. Tried in the replay, and none puts right what is wrong by
  more than 1 %: workspaces twice and four times as large; a convolution that fails without its workspace; the cache
  emptied before the first call of each convolution, about as torch's benchmark of algorithms does. A guess that
  remains: which algorithm that benchmark took there, by what was free at the moment (cudnn/Conv_v7.cpp).
- BiT-M ResNet-50 at 448, channels-last: 48 images did not run. In NCHW they did, and in both layouts 192 images of the
  same network at 224 (its distilled form) did, with 18,341 MiB alive against 18,334. BiT-M ResNet-101 ended at 16 in
  both layouts, though 24 have 14,300 MiB alive, by rules that are right for widths 2 and 3. So it is not live bytes.
  The tables name no error, and the ladder goes down on any. Width 4 is too careful in channels-last, by 1.7 %.
- PiT-S distilled, both layouts: 384 images have 20,325 MiB alive. With attention as timm had it in 2022 (scores times
  scale, not queries) the peak is the same, at the end of the forward pass; the backward pass of its largest attention
  holds 0.6 of that. Not explained.
"""
DIFFERENT = """
## Ran another batch in the other layout
{other} of {both} networks that were measured in both. Of each the prediction has nearly the same bytes alive in both.
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
    for row in sorted(rows, key=lambda row: row["key"]):
        by_group[row["group"]].append(row)
    records = list(records)
    total = Counter(record.group for record in records)
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
    return "".join([*parts, KNOWN, _layouts_differ(records), *_left_out(tried)])


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


def _layouts_differ(records: Iterable[Record]) -> str:
    """Networks that ran other batches in one layout than in the other, which live bytes do not tell apart."""
    ran: defaultdict[tuple[str, int], dict[str, int]] = defaultdict(dict)
    for record in records:
        if record.kind == "training":
            ran[record.name, record.scale_or_size][record.layout] = record.published
    both = {
        network: batches
        for network, batches in sorted(ran.items())
        if len(batches) == len(set(LAYOUTS.values()))
    }
    other = {network: batches for network, batches in both.items() if len(set(batches.values())) > 1}
    lines = [
        f"- {name}, {size}: {', '.join(f'{batches[layout]} in {layout}' for layout in sorted(batches))}\n"
        for (name, size), batches in other.items()
    ]
    return DIFFERENT.format(other=len(other), both=len(both)) + "".join(lines)


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

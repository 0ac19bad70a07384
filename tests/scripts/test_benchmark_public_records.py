"""The benchmark of public records: its files, its arithmetic by hand, and going on where it stopped."""

import json
from dataclasses import replace

import pytest

from swinmr_profiling.scripts import benchmark_public_records as command
from swinmr_profiling.scripts.public_records import record_table
from swinmr_profiling.scripts.public_records.record_page import page


def test_every_row_of_every_file():
    records = record_table.read_records()
    # 162 rows of restoration networks, each in both layouts; 397 + 396 brackets.
    assert len([r for r in records if r.kind == "inference"]) == 2 * 162
    assert len([r for r in records if r.kind == "training"]) == 397 + 396
    assert len({r.key for r in records}) == len(records)
    (esrgan,) = [r for r in records if r.key == "inference/NCHW/esrgan/use_pixel_unshuffle=False/4"]
    # 3.6489033699035645 GiB.
    assert (esrgan.published, esrgan.precision, esrgan.parameters) == (3_917_980_160, "fp16", 16_697_987)
    (vgg,) = [r for r in records if r.key == "training/channels-last/vgg16_bn/224"]
    assert (vgg.published, vgg.parameters) == (256, 138.37)


def row(group, **more):
    common = {"group": group, "key": str(more), "status": "predicted", "name": "net", "scale_or_size": 4}
    return {**common, **more}


def test_the_table_by_hand():
    inference = [
        row("inference, NCHW", deviation=-0.001, inside=True),
        row("inference, NCHW", deviation=0.03, inside=False),
        row("inference, NCHW", deviation=0.005, inside=True),
        row("inference, NCHW", status="not buildable", reason="in no package"),
    ]
    brackets = [
        row("training, NCHW", verdict="exact", published=64, inside=True),
        row("training, NCHW", verdict="too bold", published=64, inside=False),
        row("training, NCHW", verdict="exact", published=512, inside=True),
    ]
    text = record_table.table([*inference, *brackets]).splitlines()
    assert text[2] == (
        "| inference, NCHW | 4 | 3 | median 0.50%, 67% within 2 %, worst +3.0% (net x4) | 2 of 3 (67%) |"
    )
    assert text[3] == (
        "| training, NCHW | 3 | 3 | 1 exact (50%), 0 too careful (0%), 1 too bold (50%); "
        "of 1 that ran the largest batch 0 predicted not to | 2 of 3 (67%) |"
    )


def test_a_run_goes_on_where_it_stopped(monkeypatch, tmp_path, capsys):
    asked = []

    def predict(record):
        asked.append(record.key)
        return {"key": record.key, "group": record.group, "kind": record.kind, "status": "not buildable",
                "reason": "made up", "cpu_s": 0.0}  # fmt: skip

    monkeypatch.setattr(command, "predict", predict)
    output = tmp_path / "rows.jsonl"
    arguments = ["--only", "vgg", "--sample", "2", "--output", str(output)]
    assert command.main(arguments) == 0
    first = list(asked)
    assert len(first) == 2
    # The same seed draws the same two; a line that was cut short is done again.
    lines = output.read_text().splitlines()
    output.write_text(lines[0] + "\n" + lines[1][:20])
    assert command.main([*arguments, "--resume"]) == 0
    assert asked[2:] == first[1:]
    assert command.main([*arguments, "--resume", "--time-budget", "0"]) == 0
    assert [json.loads(line)["key"] for line in output.read_text().splitlines()] == first
    assert command.main(["--only", "no such network", "--output", str(output)]) == 2
    assert "no record" in capsys.readouterr().err


def test_every_row_is_on_the_page(monkeypatch, tmp_path):
    mib = 2**20
    found = {
        "inference/NCHW/compact/4": {"status": "predicted", "predicted": 1100 * mib, "published": 1000 * mib,
            "deviation": 0.1, "interval": [1096 * mib, 1107 * mib], "inside": False, "operator": "cudnn.forward"},
        "inference/NCHW/artcnn_r8f48/4": {"status": "not buildable", "reason": "in no package"},
        "training/NCHW/vgg16_bn/224": {"status": "predicted", "verdict": "too bold", "inside": False, "ran": "fits",
            "above": "fits, slower (1 flush)", "misses_by": -0.0123, "limit": 100 * mib},
    }  # fmt: skip

    def predict(record):
        row = {"kind": record.kind, "name": record.name, "variant": record.variant, "key": record.key,
               "scale_or_size": record.scale_or_size, "group": record.group, "published": record.published,
               "cpu_s": 0.0}  # fmt: skip
        return row | found.get(record.key, {"status": "not traceable", "reason": "made up"})

    monkeypatch.setattr(command, "predict", predict)
    keep = [record for record in record_table.read_records() if record.key in found]
    monkeypatch.setattr(command, "read_records", lambda: keep)
    file = tmp_path / "page.md"
    assert command.main(["--output", str(tmp_path / "rows.jsonl"), "--page", str(file)]) == 0
    text = file.read_text()
    assert "**3 of 3 records were tried** (inference, NCHW: 2 of 2; training, NCHW: 1 of 1)" in text
    assert "2 could be predicted" in text
    assert (
        "| compact x4 | 1,000.0 | 1,100.0 | +10.00% | 1,096.0 to 1,107.0 | **no** | cudnn.forward |" in text
    )
    ran = next(record for record in keep if record.kind == "training").published
    assert f"| vgg16_bn, 224 | {ran} | fits | fits, slower (1 flush) | **too bold** | -1.2% |" in text
    assert "- artcnn_r8f48: in no package" in text


def test_networks_that_ran_other_batches_in_the_other_layout():
    def bracket(layout, name, size, ran):
        return record_table.Record("training", layout, name, "", size, "fp16", 1.0, ran)

    records = [
        bracket("NCHW", "both_layouts", 224, 96),
        bracket("channels-last", "both_layouts", 224, 128),
        bracket("NCHW", "both_layouts", 448, 16),  # the same name at another size is another network
        bracket("channels-last", "both_layouts", 448, 16),
        bracket("NCHW", "one_layout", 224, 64),
        replace(bracket("channels-last", "one_layout", 224, 8), kind="inference"),
    ]
    text = page([], (record for record in records))
    assert "\n1 of 2 networks that were measured in both." in text
    assert "- both_layouts, 224: 96 in NCHW, 128 in channels-last\n" in text
    assert "one_layout" not in text
    assert "both_layouts, 448" not in text


def test_every_bold_bracket_of_nchw_ran_in_channels_last_or_is_named():
    """What the page says of them, by the rows that were tried."""
    brackets = [r for r in record_table.read_records() if r.kind == "training"]
    ran = {(r.layout, r.name, r.scale_or_size): r.published for r in brackets}
    file = record_table.RECORDS / "predicted.jsonl"
    rows = [record_table.judged(json.loads(line)) for line in file.read_text().splitlines()]
    bold = [row for row in rows if row.get("verdict") == "too bold" and row["layout"] == "NCHW"]
    assert bold
    for row in bold:
        name, size = row["name"], row["scale_or_size"]
        if name.startswith("pit_s") or name.endswith("_bitm"):
            continue
        assert ran["channels-last", name, size] > row["published"], name


@pytest.mark.parametrize(
    ("least", "expected"),
    # Of a limit of 1000: bisected between 900 and 1100 in steps of at most 2, or beyond.
    [(950, (950, 952)), (1099, (1099, 1100)), (850, (0, 0)), (1101, None)],
)
def test_what_a_batch_needs_near_the_limit(least, expected):
    found = record_table.needed_bytes(lambda size: size >= least, 1000)
    assert found is None if expected is None else expected[0] <= found <= expected[1]


def test_earlier_rows_are_judged_by_the_limit_of_today():
    limit = record_table.bracket_limit_bytes()
    row = {"needs": [limit - 1, limit + 1], "limit": 2 * limit, "verdict": "too bold"}
    found = record_table.judged(row)
    assert (found["verdict"], found["ran"], found["above"]) == ("exact", "fits", "does not fit")
    found = record_table.judged({**row, "needs": [0, round(0.99 * limit)]})
    assert (found["verdict"], round(found["misses_by"], 4)) == ("too bold", -0.01)
    found = record_table.judged({**row, "needs": [None]})  # of the largest batch; more than was looked for
    assert (found["verdict"], found["above"], round(found["misses_by"], 4)) == ("too careful", None, 0.1)
    assert record_table.judged({**row, "limit": limit})["verdict"] == "too bold"


def test_what_no_package_makes_is_not_buildable():
    (record,) = [r for r in record_table.read_records() if r.key == "inference/NCHW/artcnn_r8f48/4"]
    found = record_table.predict(record)
    assert (found["status"], found["reason"]) == ("not buildable", "in no package")


@pytest.mark.slow
def test_a_network_whose_workspace_is_at_the_peak():
    (record,) = [r for r in record_table.read_records() if r.key == "inference/NCHW/compact/2"]
    found = record_table.predict(record)
    assert found["status"] == "predicted"
    assert found["inside"]
    assert abs(found["deviation"]) < 0.01
    assert found["rests_on"] == "workspace"

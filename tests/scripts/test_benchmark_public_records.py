"""The benchmark of public records: its files, its arithmetic by hand, and going on where it stopped."""

import importlib.util
import json
import sys

import pytest

from tests.conftest import REPOSITORY


@pytest.fixture
def scripts(monkeypatch):
    """The command and the module of its table, imported as the command imports them."""
    monkeypatch.syspath_prepend(str(REPOSITORY / "scripts"))
    loaded = {}
    for name in ("record_table", "benchmark_public_records"):
        spec = importlib.util.spec_from_file_location(name, REPOSITORY / "scripts" / f"{name}.py")
        loaded[name] = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, loaded[name])
        spec.loader.exec_module(loaded[name])
    return loaded["benchmark_public_records"], loaded["record_table"]


def test_every_row_of_every_file(scripts):
    records = scripts[1].read_records()
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


def test_the_table_by_hand(scripts):
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
    text = scripts[1].table([*inference, *brackets]).splitlines()
    assert text[2] == (
        "| inference, NCHW | 4 | 3 | median 0.50%, 67% within 2 %, worst +3.0% (net x4) | 2 of 3 (67%) |"
    )
    assert text[3] == (
        "| training, NCHW | 3 | 3 | 1 exact (50%), 0 too careful (0%), 1 too bold (50%); "
        "of 1 that ran the largest batch 0 predicted not to | 2 of 3 (67%) |"
    )


def test_a_run_goes_on_where_it_stopped(scripts, monkeypatch, tmp_path, capsys):
    command, _ = scripts
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


def test_what_no_package_makes_is_not_buildable(scripts):
    _, table = scripts
    (record,) = [r for r in table.read_records() if r.key == "inference/NCHW/artcnn_r8f48/4"]
    found = table.predict(record)
    assert (found["status"], found["reason"]) == ("not buildable", "in no package")


@pytest.mark.slow
def test_a_network_whose_workspace_is_at_the_peak(scripts):
    _, table = scripts
    (record,) = [r for r in table.read_records() if r.key == "inference/NCHW/compact/2"]
    found = table.predict(record)
    assert found["status"] == "predicted"
    assert found["inside"]
    assert abs(found["deviation"]) < 0.01
    assert found["rests_on"] == "workspace"

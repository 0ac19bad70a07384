"""Every option of every command that names what is written: no device is replaced, and no link."""

import importlib
import json
import os
import stat

import pytest
import torch

from swinmr_profiling.configs import config_from_dict
from swinmr_profiling.models.registry import build_model
from tests.commands.test_test import command_of
from tests.conftest import TINY_SWINIR
from tests.made_profiles import profile as made_profile
from tests.no_files import KINDS, put
from tests.training.conftest import TINY_RUN, merged
from tests.training_profiles import memory_model
from tests.training_profiles import profile as training_profile

PIPELINE = ("--pipeline", "sd15", "--height", "64", "--width", "64", "--steps", "1")
PROFILE = (
    "--config",
    "tiny.json",
    "--device",
    "cpu",
    "--no-training",
    "--cross-check",
    "off",
    "--num-runs",
    "1",
)
SEVERAL = ("--configs", "tiny.json", *PROFILE[2:], "--output", "several")
IMAGE = ("--model", "unet", "--prompt", "a cat", "--steps", "1", "--seed", "7", "--device", "cpu")

# Command; its arguments, in which {} is where the file is to be written; that place in the test's folder; and the
# function that must not be reached when it cannot be written, since it is where the work begins.
COMPARE = (
    "swinmr_profiling.scripts.compare_profiles",
    "swinmr_profiling.scripts.compare_profiles.compare_files",
)
PIPELINES = (
    "swinmr_profiling.scripts.profile_pipeline",
    "swinmr_profiling.profiler.pipelines.run.cost_pipeline",
)
MODEL = (
    "swinmr_profiling.scripts.profile_model",
    "swinmr_profiling.profiler.run.profile_command.run_profile",
)
IMAGES = (
    "swinmr_profiling.scripts.generate_image",
    "swinmr_profiling.profiler.pipelines.live.generation.load_pipeline_object",
)
RECOMMEND = (
    "swinmr_profiling.scripts.recommend_batch_size",
    "swinmr_profiling.scripts.recommend_batch_size.recommend_training",
)
FIT = (
    "swinmr_profiling.scripts.fit_inference",
    "swinmr_profiling.profiler.largest_tile.inference_fit.fit_inference",
)
SMALL_CARD = ("--gpu-memory", "800MiB", "--precision", "fp32", "--layout", "contiguous")
GPU = ("swinmr_profiling.scripts.check_on_gpu", "swinmr_profiling.scripts.check_on_gpu.GpuCheck")
SWINMR = ("swinmr_profiling.scripts.benchmark_swinmr", "swinmr_profiling.scripts.benchmark_swinmr.rows")
EXPORT = (
    "swinmr_profiling.scripts.export_checkpoint",
    "swinmr_profiling.training.run.checkpoint_export.export_checkpoint",
)
TRAIN = ("train", "swinmr_profiling.training.run.loop.training_step")
TEST = ("test", "swinmr_profiling.training.evaluation.evaluation_run.evaluate")
CASES = {
    **{f"compare {o}": (*COMPARE, ("a.json", o, "{}"), "out/c") for o in ("--html", "--markdown", "--csv")},
    **{f"pipeline {o}": (*PIPELINES, (*PIPELINE, o, "{}"), "out/p") for o in ("--csv", "--chart")},
    "fit --output": (*FIT, ("--config", "tiny.json", *SMALL_CARD, "--output", "{}"), "out/f.json"),
    "pipeline --output": (*PIPELINES, (*PIPELINE, "--output", "{}"), "out/p.json"),
    **{
        f"model {o}": (*MODEL, (*PROFILE, o, "{}"), "out/p")
        for o in ("--output", "--report", "--csv", "--markdown", "--trace", "--benchmark-json")
    },
    "model --memory-snapshot": (
        *MODEL,
        (*(one for one in PROFILE if one != "--no-training"), "--memory-snapshot", "{}"),
        "out/p",
    ),
    "model --plot": (*MODEL, (*PROFILE, "--plot", "plots"), "plots/latency.svg"),
    "models --output": (*MODEL, SEVERAL, "several/profile_tiny.json"),
    "models --csv": (*MODEL, (*SEVERAL, "--csv", "{}"), "out/c.csv"),
    "models --plot": (*MODEL, (*SEVERAL, "--plot", "plots"), "plots/profile_tiny/throughput.png"),
    "image": (*IMAGES, (*IMAGE, "--output-dir", "out"), "out/unet_seed7.png"),
    "list of images": (*IMAGES, (*IMAGE, "--output-dir", "out"), "out/generation_config.json"),
    "recommend --write": (*RECOMMEND, ("t.json", "--gpu", "RTX 3090", "--write", "{}"), "out/c.json"),
    "check_on_gpu --output": (*GPU, ("--dry-run", "--output", "{}"), "out/check.json"),
    "export": (*EXPORT, ("weights.pth", "{}", "--config", "tiny.json"), "out/w.pth"),
    "benchmark_swinmr --output": (*SWINMR, ("--quick", "--output", "{}"), "out/rows.json"),
    **{
        f"train {name}": (*TRAIN, ("--config", "run.json", "--device", "cpu"), f"runs/tiny/{name}")
        for name in ("checkpoints/last.pth", "checkpoints/best.pth", "logs/log.jsonl")
    },
    **{
        f"test {name}": (*TEST, ("--config", "run.json", "--device", "cpu", "--output", "out"), f"out/{name}")
        for name in ("summary.json", "slices.csv", "pictures.png")
    },
}
# What the test suite may lack, or what is a package of its own.
NEEDS = {"image": "diffusers", "list of images": "diffusers", "benchmark_swinmr --output": "spandrel"}
NEEDS |= {"pipeline --csv": "diffusers", "pipeline --chart": "diffusers", "pipeline --output": "diffusers"}


def main_of(command):
    """Its `main`; that of a file of the repository's root is loaded by place: `test` is a standard module too."""
    return (importlib.import_module(command) if "." in command else command_of(command)).main


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Inputs of all commands, in the working directory."""
    (tmp_path / "tiny.json").write_text(json.dumps({"model": TINY_SWINIR, "data": {"use_patches": False}}))
    (tmp_path / "a.json").write_text(json.dumps(made_profile()))
    (tmp_path / "t.json").write_text(json.dumps(training_profile(model=memory_model())))
    raw = merged({**TINY_RUN, "paths": {"root": "runs"}}, {"training.total_steps": 1})
    (tmp_path / "run.json").write_text(json.dumps(raw))
    network = build_model(config_from_dict({"model": TINY_SWINIR})).module
    torch.save(network.state_dict(), tmp_path / "weights.pth")
    (tmp_path / "unet").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(command, arguments, place, monkeypatch, capsys):
    """(exit status, standard output, standard error) of a command in this process."""
    given = [argument.replace("{}", str(place)) for argument in arguments]
    monkeypatch.setattr("sys.argv", [command, *given])
    capsys.readouterr()
    try:
        # benchmark_swinmr reads sys.argv alone.
        main = main_of(command)
        status = main() if command == "swinmr_profiling.scripts.benchmark_swinmr" else main(given)
    except SystemExit as end:
        status = end.code
    captured = capsys.readouterr()
    return status, captured.out, captured.err


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", CASES)
def test_what_is_no_file_is_refused_before_any_work(folder, monkeypatch, capsys, case, kind):
    if case in NEEDS:
        pytest.importorskip(NEEDS[case])
    command, work, arguments, place = CASES[case]
    if command == "test":
        write_weights(folder / "runs/tiny/checkpoints/best.pth")
    check_untouched = put(kind, folder / place)
    main_of(command)  # what it imports is there before one of its functions is replaced
    reached = []
    monkeypatch.setattr(work, lambda *_, **__: reached.append(work) or pytest.fail("the work began"))
    status, out, err = run(command, arguments, place, monkeypatch, capsys)
    assert (status, reached) == (2, []), (out, err)
    [line] = [line for line in err.splitlines() if "error: " in line]
    assert place in line
    assert ("is a folder" if kind == "folder" else "is not an ordinary file") in line
    assert "Traceback" not in err
    check_untouched()
    assert [name for name in os.listdir((folder / place).parent) if name.endswith(".tmp")] == []


def write_weights(file):
    from swinmr_profiling.configs import config_from_dict
    from swinmr_profiling.models.registry import build_model
    from swinmr_profiling.training.run.checkpoints import write_checkpoint

    config = config_from_dict(TINY_RUN)
    content = {"params": build_model(config).module.state_dict(), "params_ema": None, "step": 7}
    write_checkpoint({**content, "config": config.model_dump(mode="json")}, file)


def test_the_batch_size_is_not_written_into_a_pipe_that_nobody_feeds(folder, monkeypatch, capsys):
    """Reading the config first would wait for ever; the refusal comes before it."""
    os.mkfifo(folder / "config")
    arguments = ("t.json", "--gpu", "RTX 3090", "--write", "{}")
    status, _, err = run(
        "swinmr_profiling.scripts.recommend_batch_size", arguments, "config", monkeypatch, capsys
    )
    assert (status, err) == (2, "error: --write config: is not an ordinary file\n")


class Linked:
    """Names that are links: every other one to an old file of its own permissions, the rest to none."""

    def __init__(self, folder, *names):
        self.store = folder / "store"
        self.store.mkdir()
        self.names, self.folder = names, folder
        for number, name in enumerate(names):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).symlink_to(self.store / str(number))
            if number % 2 == 0:
                (self.store / str(number)).write_text("old")
                (self.store / str(number)).chmod(0o640)

    def check(self):
        """All are links still, all targets are written, with the permissions they had. Yields (name, content)."""
        for number, name in enumerate(self.names):
            target = self.store / str(number)
            assert os.readlink(self.folder / name) == str(target), name
            assert stat.S_IMODE(target.stat().st_mode) == (0o640 if number % 2 == 0 else 0o644), name
            assert target.read_bytes() != b"old", name
            yield name, target.read_bytes()
        assert sorted(os.listdir(self.store)) == sorted(str(number) for number in range(len(self.names)))


@pytest.fixture(autouse=True)
def _umask():
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.parametrize("names", [("h", "m", "c"), ("m", "c", "h"), ("c", "h", "m")])
def test_a_comparison_is_written_through_links(folder, monkeypatch, capsys, names):
    linked = Linked(folder, *names)
    arguments = ("a.json", "--html", "h", "--markdown", "m", "--csv", "c", "--quiet")
    assert run("swinmr_profiling.scripts.compare_profiles", arguments, "", monkeypatch, capsys)[0] == 0
    content = dict(linked.check())
    assert content["h"].startswith(b"<!doctype html>")
    assert content["m"].startswith(b"#")
    assert content["c"].startswith(b"figure,")


def test_a_batch_size_is_written_through_a_link(folder, monkeypatch, capsys):
    from swinmr_profiling.configs import load_config
    from swinmr_profiling.profiler.record.memory_fingerprint import memory_fingerprint

    text = json.dumps({"model": TINY_SWINIR, "data": {"batch_size": 1, "patch_size": 32}})
    (folder / "real.json").write_text("// kept\n" + text)
    (folder / "real.json").chmod(0o640)
    (folder / "link.json").symlink_to("real.json")
    model = memory_model(memory_fingerprint=memory_fingerprint(load_config("real.json").config))
    (folder / "t.json").write_text(json.dumps(training_profile(model=model)))
    arguments = ("t.json", "--gpu-memory", "80GiB", "--write", "link.json")
    status, out, err = run(
        "swinmr_profiling.scripts.recommend_batch_size", arguments, "", monkeypatch, capsys
    )
    assert status == 0, (out, err)
    assert os.readlink(folder / "link.json") == "real.json"
    assert (folder / "real.json").read_text().startswith("// kept\n")
    written = load_config("real.json").config.data.batch_size
    assert written > 1
    assert f"data.batch_size {written}" in out
    assert stat.S_IMODE((folder / "real.json").stat().st_mode) == 0o640


@pytest.mark.slow
def test_the_cost_of_a_pipeline_is_written_through_links(folder, monkeypatch, capsys):
    pytest.importorskip("diffusers")
    linked = Linked(folder, "p.json", "p.csv", "p.png")
    arguments = (*PIPELINE, "--output", "p.json", "--csv", "p.csv", "--chart", "p.png")
    status, out, err = run("swinmr_profiling.scripts.profile_pipeline", arguments, "", monkeypatch, capsys)
    assert status == 0, (out, err)
    content = dict(linked.check())
    assert json.loads(content["p.json"])["pipelines"]
    assert content["p.png"].startswith(b"\x89PNG")


def test_an_image_is_written_through_links(folder, tiny_pipeline_folders, monkeypatch, capsys):
    pytest.importorskip("diffusers")
    linked = Linked(folder, "out/unet_seed7.png", "out/generation_config.json")
    arguments = (
        *IMAGE,
        "--height",
        "32",
        "--width",
        "32",
        "--no-profiling",
        "--output-dir",
        "out",
        "--model",
    )
    arguments = (*arguments, str(tiny_pipeline_folders["unet"]))
    status, out, err = run("swinmr_profiling.scripts.generate_image", arguments, "", monkeypatch, capsys)
    assert status == 0, (out, err)
    content = dict(linked.check())
    assert content["out/unet_seed7.png"].startswith(b"\x89PNG")


def test_a_training_writes_its_best_checkpoint_and_its_log_through_links(folder, monkeypatch, capsys):
    from swinmr_profiling.training.run.checkpoints import read_checkpoint

    best = folder / "store/best.pth"
    best.parent.mkdir()
    (folder / "runs/tiny/checkpoints").mkdir(parents=True)
    (folder / "runs/tiny/checkpoints/best.pth").symlink_to(best)
    (folder / "runs/tiny/logs").mkdir()
    (folder / "runs/tiny/logs/log.jsonl").symlink_to(folder / "store/log")
    arguments = ("--config", "run.json", "--device", "cpu")
    status, out, err = run("train", arguments, "", monkeypatch, capsys)
    assert status == 0, (out, err)
    assert os.readlink(folder / "runs/tiny/checkpoints/best.pth") == str(best)
    assert read_checkpoint(best)["step"] == 1
    kinds = [json.loads(line)["kind"] for line in (folder / "store/log").read_text().splitlines()]
    assert kinds == ["train", "validation"]
    names = {"best.pth", "last.pth", "step_000000001.pth"}
    assert set(os.listdir(folder / "runs/tiny/checkpoints")) == names


def test_an_evaluation_is_written_through_links(folder, monkeypatch, capsys):
    linked = Linked(folder, "out/summary.json", "out/slices.csv", "out/pictures.png")
    write_weights(folder / "runs/tiny/checkpoints/best.pth")
    arguments = ("--config", "run.json", "--device", "cpu", "--output", "out")
    status, out, err = run("test", arguments, "", monkeypatch, capsys)
    assert status == 0, (out, err)
    content = dict(linked.check())
    assert json.loads(content["out/summary.json"])["pictures"]["file"] == "pictures.png"
    assert content["out/pictures.png"].startswith(b"\x89PNG")


@pytest.mark.slow
def test_a_profile_is_written_through_links(folder, monkeypatch, capsys):
    """A whole run: the JSON, which is written again and again, every report and a chart."""
    linked = Linked(folder, "p.json", "p.html", "p.csv", "p.md", "plots/latency.png")
    arguments = ("--output", "p.json", "--report", "p.html", "--csv", "p.csv", "--markdown", "p.md")
    status, out, err = run(
        "swinmr_profiling.scripts.profile_model",
        (*PROFILE, *arguments, "--plot", "plots"),
        "",
        monkeypatch,
        capsys,
    )
    assert status == 0, (out, err)
    content = dict(linked.check())
    assert json.loads(content["p.json"])["status"] == "complete"
    assert content["plots/latency.png"].startswith(b"\x89PNG")


def test_every_chart_that_is_drawn_is_one_that_was_checked():
    from swinmr_profiling.profiler.reports.charts.drawing import CHART_NAMES, charts_of
    from tests.made_profiles import with_training
    from tests.profiler.comparing.test_comparison import view

    assert [chart.name for chart in charts_of(view(with_training()))] == list(CHART_NAMES)

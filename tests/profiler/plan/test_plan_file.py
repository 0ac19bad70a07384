"""Plans as files: written by the command, read by train.py, applied from Python."""

import json

import pytest
import torch

from swinmr_profiling import PlanError, apply_plan
from swinmr_profiling.configs import config_from_dict
from swinmr_profiling.models.recomputation.recomputed_modules import recomputed_modules
from swinmr_profiling.models.registry import build_model
from swinmr_profiling.profiler.batch_size.budget import budget_on
from swinmr_profiling.profiler.plan.budgeted_modules import WRITTEN, with_budget_resolved
from swinmr_profiling.profiler.plan.plan_file import config_with_plan, read_plan
from swinmr_profiling.profiler.prediction.replay import live_peak, replay
from swinmr_profiling.profiler.prediction.trace import trace_cache
from swinmr_profiling.profiler.prediction.trace.traced_step import trace_training
from swinmr_profiling.scripts import plan_training
from tests.training.conftest import TINY_RUN, merged

MIB = 2**20
NETWORK = {"model": {"net_type": "dit_denoiser", "img_size": 128, "patch_size": 4, "embed_dim": 48, "depth": 2,
                     "num_heads": 2}, "data": {"use_patches": False},
           "system": {"mixed_precision": "bf16"}}  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def own_traces(tmp_path_factory):
    trace_cache.keep_in(tmp_path_factory.mktemp("traces"))
    yield
    trace_cache.keep_in(None)


def plan(tmp_path, *arguments, content=NETWORK):
    file = tmp_path / "config.json"
    file.write_text(json.dumps(content))
    output = tmp_path / "plan.json"
    code = plan_training.main(["--config", str(file), "--output", str(output), *map(str, arguments)])
    return code, output


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A plan for the network's batch of 4 as one micro-batch where its memory as it is does not fit."""
    config = config_from_dict({**NETWORK, "data": {"use_patches": False, "batch_size": 4}})
    reserved = replay(trace_training(build_model(config), config, 4)).peak_reserved_bytes
    outside = budget_on("a card", 2**33, None, torch_version=torch.__version__)
    total = reserved + outside.context_bytes + outside.workspace_bytes - 2 * MIB
    code, output = plan(
        tmp_path_factory.mktemp("plan"),
        *("--gpu-memory", f"{total // MIB}MiB", "--headroom", "0%", "--batch", 4, "--micro-batch", 4),
    )
    # What waits on the host comes before what is computed again, which is what is taken here.
    found = json.loads(output.read_text())
    found["chosen"] = [one["checkpointing"] == "none" for one in found["settings"]].index(False)
    output.write_text(json.dumps(found))
    return config, code, output.read_bytes()


@pytest.fixture
def plan_file(made, tmp_path):
    file = tmp_path / "plan.json"
    file.write_bytes(made[2])
    return file


@pytest.mark.slow
def test_a_plan_fits_is_what_is_traced_and_is_applied(made, plan_file):
    config, code, _ = made
    output = plan_file
    assert code == 0
    found = read_plan(output)
    assert {(s.micro_batch, s.accumulate, s.precision, s.fits) for s in found.settings} == {
        (4, 1, "bf16", True)
    }
    assert found.setting.checkpointing != "none"
    assert all(s.on_host for s in found.settings[: found.chosen])
    assert found.setting.recomputed_bytes > 0
    assert all(s.needed_bytes <= found.budget.usable_bytes for s in found.settings)
    planned, message = config_with_plan(
        config, output, loss=found.loss, config_file="c.json", total_bytes=None
    )
    assert "4 x 1 accumulated" in message
    trace = trace_training(build_model(planned), planned, 4)
    assert live_peak(trace, trace.step_starts[0])[0] == found.setting.live_bytes
    module = build_model(config).module
    if found.setting.modules:
        assert apply_plan(module, output) == found.setting.modules == list(recomputed_modules(module))


@pytest.mark.slow
def test_a_plan_of_another_config_stops(made, plan_file, tmp_path):
    config, output = made[0], plan_file
    loss = read_plan(output).loss
    other = config.model_copy(update={"training": config.training.model_copy(update={"ema_decay": 0.0})})
    with pytest.raises(
        PlanError, match=r"another network, patch, loss or optimizer .*run scripts/plan_training\.py"
    ):
        config_with_plan(other, output, loss=loss, config_file="c.json", total_bytes=None)
    with pytest.raises(PlanError, match="with the loss"):
        config_with_plan(config, output, loss="another", config_file="c.json", total_bytes=None)
    with pytest.raises(PlanError, match="less memory"):
        config_with_plan(config, output, loss=loss, config_file="c.json", total_bytes=100)
    output.write_text('{"kind": "training plan", "version": 1}')
    with pytest.raises(PlanError, match="is no plan"):
        apply_plan(torch.nn.Linear(1, 1), output)
    output.write_text("{")
    with pytest.raises(PlanError, match="no plan can be read"):
        read_plan(output)
    with pytest.raises(PlanError, match="no such file"):
        read_plan(tmp_path / "none.json")


@pytest.mark.slow
def test_where_nothing_fits_the_nearest_is_printed(tmp_path, capsys):
    code, output = plan(tmp_path, "--gpu-memory", "450MiB", "--batch", 2)
    told = capsys.readouterr()
    assert code == 3
    assert "nothing fits 450MiB GPU" in told.err
    assert "is nearest, and does not fit" in told.out
    assert not output.exists()


def test_a_micro_batch_divides_the_batch(tmp_path, capsys):
    assert plan(tmp_path, "--gpu-memory", "24GiB", "--batch", 3, "--micro-batch", 2)[0] == 2
    assert "does not divide" in capsys.readouterr().err


def test_a_plan_for_several_gpus_is_refused(tmp_path, capsys):
    assert plan(tmp_path, "--gpu-memory", "24GiB", "--batch", 4, "--devices", 2)[0] == 2
    assert capsys.readouterr().err == (
        "error: --devices 2: a plan is for one GPU (recommend_batch_size.py --devices predicts several)\n"
    )


@pytest.mark.slow
def test_a_budget_is_resolved_once_and_written_down(tmp_path):
    raw = {**NETWORK, "data": {"use_patches": False, "batch_size": 8}}
    plain = config_from_dict(raw)
    trace = trace_training(build_model(plain), plain, 8, validation=False)
    reserved = replay(trace).peak_reserved_bytes
    budget = f"{reserved // MIB - 4}MiB"
    config = config_from_dict({**raw, "training": {"gradient_checkpointing": {"budget": budget}}})
    resolved, message = with_budget_resolved(config, trust_config=False, folder=tmp_path)
    names = resolved.training.checkpointed_modules
    assert names
    assert "chosen now" in message
    trace = trace_training(build_model(resolved), resolved, 8, validation=False)
    assert replay(trace).peak_reserved_bytes <= (reserved // MIB - 4) * MIB
    # What is written down is taken, whatever would be chosen now.
    file = tmp_path / WRITTEN
    content = json.loads(file.read_text())
    assert content["modules"] == names
    file.write_text(json.dumps({**content, "modules": ["blocks.0"]}))
    again, message = with_budget_resolved(config, trust_config=False, folder=tmp_path)
    assert again.training.checkpointed_modules == ["blocks.0"]
    assert "as written down" in message
    with pytest.raises(PlanError, match="no set of modules brings a step of batch 8 within 1MiB"):
        with_budget_resolved(
            config_from_dict({**raw, "training": {"gradient_checkpointing": {"budget": "1MiB"}}}),
            trust_config=False,
            folder=None,
        )


@pytest.mark.slow
def test_train_takes_a_plan_and_a_budget(tmp_path, capsys):
    from swinmr_profiling import train

    sections = {**TINY_RUN, "paths": {"root": str(tmp_path / "runs")}}
    code, output = plan(tmp_path, "--gpu-memory", "24GiB", "--batch", 4, "--micro-batch", 2, content=sections)
    assert code == 0
    planned = tmp_path / "planned.json"
    planned.write_text(json.dumps(merged(sections, {"training.plan": str(output)})))
    assert train.main(["--config", str(planned), "--device", "cpu"]) == 0
    assert "batch 2 per device x 2 accumulated x 1 devices = 4 per step" in capsys.readouterr().out
    stale = merged(sections, {"training.plan": str(output), "training.ema_decay": 0.0})
    planned.write_text(json.dumps(stale))
    assert train.main(["--config", str(planned), "--device", "cpu"]) == 2
    assert "another network, patch, loss or optimizer" in capsys.readouterr().err
    budget = {"training.gradient_checkpointing": {"budget": "1GiB"}, "experiment_name": "other"}
    planned.write_text(json.dumps(merged(sections, budget)))
    assert train.main(["--config", str(planned), "--device", "cpu"]) == 0
    assert "none is needed" in capsys.readouterr().out

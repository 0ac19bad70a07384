"""Going on from an earlier profile: what is taken over, what is refused, and what a damaged file is answered with."""

import io
import json

import pytest

from swinmr_profiling.configs import config_from_dict
from swinmr_profiling.profiler.isolation.measuring_session import MeasureOptions
from swinmr_profiling.profiler.measure.measurement_blocks import training_block
from swinmr_profiling.profiler.prediction.settings import TrainingSetting
from swinmr_profiling.profiler.record.blocks.recommended import TrainingSearch
from swinmr_profiling.profiler.record.blocks.run_description import Environment
from swinmr_profiling.profiler.record.files.result_file import ResultFile
from swinmr_profiling.profiler.record.profile import Profile
from swinmr_profiling.profiler.reports.console.terminal import Console
from swinmr_profiling.profiler.run.context import RunContext, RunOptions, TrainingOptions
from swinmr_profiling.profiler.run.resume import ResumeError, check_machine, read_earlier, take_over
from swinmr_profiling.profiler.run.steps import prediction_steps
from swinmr_profiling.profiler.run.steps.batch_steps import measure_batches, measure_perceptual_metric
from swinmr_profiling.profiler.run.steps.prediction_steps import predict_training
from tests import made_profiles
from tests.made_profiles import SAMPLES_1, failed, profile, ran, with_training
from tests.training_profiles import MEASURED

CONFIG = config_from_dict({"model": {"net_type": "swinir"}})

LPIPS = {
    "source": "measured",
    "metric": "lpips",
    "backbone": "alex",
    "input_shape": [1, 3, 64, 64],
    "num_runs": 10,
    "total_parameters": 1,
    "macs": 2,
    "flops": 4,
    "timing": made_profiles.timing(SAMPLES_1, 1),
}
SEARCH = TrainingSearch(
    source="measured",
    outcome="found",
    batch_size=3,
    reason="batch 4 does not fit",
    held_by_others_bytes=0,
    steps_run=9,
    trials=[],
)


def earlier_profile(**further):
    content = with_training(profile())
    content["architecture"] |= {"note": None, "counters": [counter()]}
    for setting in content["memory_model"]["settings"]:  # nothing to replay: its table is all there is
        setting |= {"affine_from_batch": None, "aligned": False, "allocations": None}
    return Profile.model_validate({**content, **further})


def counter():
    """Of a counter that is not installed: nothing of it is known."""
    unknown = (
        "input_shapes", "figure", "figure_parameters", "ours", "ours_parameters", "difference",
        "parameters_difference", "exact_macs", "agrees", "version", "seconds",
    )  # fmt: skip
    told = {"counter": "fvcore", "status": "missing", "size": "small", "convention": "MACs", "inexact": False}
    return {**dict.fromkeys(unknown), **told, "reason": "not installed", "parts": [], "parameter_parts": []}


def same_run(earlier, device="auto"):
    """What the same command starts with."""
    return Profile.begun(earlier.config.model_copy(update={"device": device}, deep=True))


def opened(resumed, earlier, **changes):
    """Puts in what an opened process answers; changes: of the environment."""
    resumed.config.device = changes.pop("device", "cpu")
    environment = {**earlier.environment.to_json(), "time_utc": "later", **changes}
    resumed.environment = Environment.model_validate(environment)


def test_all_that_was_measured_or_predicted_is_there_before_anything_is_started():
    earlier = earlier_profile(perceptual_metric=LPIPS)
    resumed = same_run(earlier)
    assert take_over(resumed, earlier) == ["1", "2"]
    content, before = resumed.to_json(), earlier.to_json()
    for name in (
        "architecture", "single_image", "batch_profiling", "memory_model", "recommendation", "perceptual_metric",
        "environment",
    ):  # fmt: skip
        assert content[name] == before[name], name


def test_what_failed_is_tried_again_and_out_of_memory_is_an_answer():
    batches = {
        1: ran(1, SAMPLES_1),
        2: failed(2, "killed"),
        4: failed(4, "OOM"),
        8: failed(8, "skipped"),
        16: failed(16, "crashed"),
    }
    warnings = [
        {"code": "any", "message": "of the run", "batch_size": None},
        {"code": "any", "message": "of 1", "batch_size": 1},
        {"code": "any", "message": "of 2", "batch_size": 2},
    ]
    earlier = Profile.model_validate(profile(batches, warnings=warnings))
    resumed = same_run(earlier)
    assert take_over(resumed, earlier) == ["1", "4"]
    assert [warning.message for warning in resumed.warnings] == ["of the run", "of 1"]


@pytest.mark.parametrize(
    "key",
    ["config_sha256", "precision", "channels_last", "compile", "num_runs", "warmup", "time_budget_s", "seed", "threads",
     "resolved"],
)  # fmt: skip
def test_another_config_is_refused_by_name(key):
    earlier = earlier_profile()
    resumed = same_run(earlier)
    setattr(resumed.config, key, "another")
    with pytest.raises(ResumeError, match=f"another {key}: use another --output"):
        take_over(resumed, earlier)
    assert resumed.batch_profiling == {}


def test_the_same_machine_is_known_by_what_changes_a_latency():
    earlier = earlier_profile()
    resumed = same_run(earlier)
    take_over(resumed, earlier)
    opened(resumed, earlier)
    check_machine(resumed, earlier)
    assert resumed.environment.resumed_from_utc == "2026-01-01T00:00:00+00:00"
    assert earlier.environment.resumed_from_utc is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"device": "cuda:0"}, "device cpu, this is cuda:0"),
        ({"cpu": {**made_profiles.environment()["cpu"], "name": "another"}}, "processor a processor"),
        ({"cpu": {**made_profiles.environment()["cpu"], "threads": 1}}, "threads 2, this is 1"),
        ({"cpu": {**made_profiles.environment()["cpu"], "usable_cores": 1}}, "usable cores 2, this is 1"),
        ({"gpu": made_profiles.gpu()}, "GPU None, this is NVIDIA GeForce RTX 3090"),
        ({"packages": {"torch": "2.9.0"}}, "torch 2.14.1, this is 2.9.0"),
    ],
)
def test_another_machine_is_refused_by_what_differs(changes, words):
    earlier = earlier_profile()
    resumed = same_run(earlier)
    take_over(resumed, earlier)
    opened(resumed, earlier, **changes)
    with pytest.raises(ResumeError, match=words):
        check_machine(resumed, earlier)


def test_a_run_that_ended_before_it_knew_its_machine_has_nothing():
    earlier = Profile.model_validate({**made_profiles.partial(), "environment": {}})
    resumed = same_run(earlier)
    assert take_over(resumed, earlier) == []
    resumed.environment = Environment.model_validate(made_profiles.environment())
    check_machine(resumed, earlier)
    assert resumed.environment.resumed_from_utc is None


def test_a_profile_reads_back_and_none_is_none(tmp_path):
    file = tmp_path / "p.json"
    assert read_earlier(file) is None
    for content in (earlier_profile().to_json(), profile(), made_profiles.partial()):
        file.write_text(json.dumps(content))
        assert read_earlier(file).to_json() == content


def at(content, *path):
    for key in path:
        content = content[key]
    return content


DAMAGED = {
    "a list": lambda content: [content],
    "the version alone": lambda content: {"schema_version": 1},
    "a config that is a list": lambda content: {**content, "config": []},
    "an empty config": lambda content: {**content, "config": {}},
    "no blocks": lambda content: {"schema_version": 1, "config": content["config"]},
    "batches that are a list": lambda content: {**content, "batch_profiling": []},
    "a batch that is a number": lambda content: {**content, "batch_profiling": {"1": 3}},
    "a batch of no size": lambda content: {**content, "batch_profiling": {"x": content["single_image"]}},
    "a batch of nothing": lambda content: {**content, "batch_profiling": {"1": {}}},
    "a single image that is text": lambda content: {**content, "single_image": "timing"},
    "an environment that is a list": lambda content: {**content, "environment": [1]},
    "an environment without a processor": lambda content: {**content, "environment": {"gpu": None}},
    "an architecture that is text": lambda content: {**content, "architecture": "x"},
    "an architecture of nothing": lambda content: {**content, "architecture": {}},
    "warnings that are numbers": lambda content: {**content, "warnings": [1]},
    "warnings of another kind": lambda content: {**content, "warnings": [{"text": "x"}]},
    "a memory model of nothing": lambda content: {**content, "memory_model": {}},
    "a memory model that is a number": lambda content: {**content, "memory_model": 7},
    "a recommendation that is a list": lambda content: {**content, "recommendation": [1]},
    "the original script's": lambda content: made_profiles.ORIGINAL,
    "a later version": lambda content: {**content, "schema_version": 3},
}
# (path to a block, the key that is taken out of it)
MISSING = [
    (("config",), "batch_sizes"),
    (("environment",), "time_utc"),
    (("environment", "packages"), "torch"),
    (("batch_profiling", "2"), "memory"),
    (("batch_profiling", "2"), "batch_size"),
    (("batch_profiling", "2", "timing"), "samples_ms"),
    (("batch_profiling", "2", "memory"), "before_bytes"),
    (("single_image", "timing"), "median_ms"),
    (("architecture",), "total_parameters"),
    (("architecture",), "counters"),
    (("memory_model",), "settings"),
    (("recommendation", "training", 0, "budget"), "workspace_bytes"),
    ((), "perceptual_metric"),
    ((), "warnings"),
]


def refusal(file, text):
    file.write_text(text)
    with pytest.raises(ResumeError) as caught:
        read_earlier(file)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(f"--resume: {file}")
    assert file.read_text() == text


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_profile_is_refused_in_one_line(tmp_path, damage):
    refusal(tmp_path / "p.json", json.dumps(DAMAGED[damage](earlier_profile().to_json())))


@pytest.mark.parametrize(("path", "key"), MISSING)
def test_a_profile_without_what_the_run_reads_is_refused_in_one_line(tmp_path, path, key):
    content = earlier_profile().to_json()
    del at(content, *path)[key]
    refusal(tmp_path / "p.json", json.dumps(content))


@pytest.mark.parametrize("text", ["", "{", "[[", "null", '"text"', '{"schema_version": NaN}'])
def test_what_is_no_json_is_refused_in_one_line(tmp_path, text):
    refusal(tmp_path / "p.json", text)


def test_standard_output_cannot_be_resumed():
    with pytest.raises(ResumeError, match="--output FILE, not -"):
        read_earlier(None)


class NoProcess:
    """A session that may not be asked for anything: all has been measured."""

    process = None


def resumed_context(earlier, **options):
    resumed = same_run(earlier, device="cpu")
    take_over(resumed, earlier)
    context = RunContext(
        RunOptions(MeasureOptions(), batch_sizes=[1, 2], **options),
        NoProcess(),
        resumed,
        Console(io.StringIO()),
        ResultFile("-"),
    )
    context.input_shape = [1, 1, 64, 64]
    return context


def test_a_measured_training_step_is_not_replaced_by_its_prediction():
    """Batch 1 of the earlier run was trained, batch 2 predicted (from another table), batch 4 was killed."""
    earlier = earlier_profile()
    trained = training_block(MEASURED)
    earlier.set_training(1, trained)
    context = resumed_context(earlier)
    measure_batches(context, [1, 2])
    blocks = context.profile.batch_profiling
    assert blocks["1"].training == trained
    # The table says 2101 MiB allocated at batch 2, and 17 of workspaces come on top.
    assert blocks["2"].training.peak_bytes == (2101 + 17) * 2**20
    assert blocks["2"].training.source == "predicted"


def test_a_prediction_without_a_recommendation_is_no_traceback():
    """The run ended between the two, and the next is told --no-training."""
    earlier = earlier_profile(recommendation=None)
    context = resumed_context(earlier)
    measure_batches(context, [1, 2])
    assert context.profile.memory_model == earlier.memory_model


def test_lpips_is_not_measured_again():
    earlier = earlier_profile(perceptual_metric=LPIPS)
    context = resumed_context(earlier, with_lpips=True)
    measure_perceptual_metric(context)
    assert context.profile.perceptual_metric.macs == 2


class Predicting:
    """A session of prediction that fails, and says whether it was asked."""

    asked = False

    def predict_with_inference(self, *_arguments, **_options):
        self.asked = True
        raise prediction_steps.RequestRefusedError("asked")


@pytest.mark.parametrize(("sizes", "asked"), [([1, 2], False), ([1, 32], False), ([1, 3], True)])
def test_a_table_of_sizes_stays_where_it_has_those_asked_for(monkeypatch, sizes, asked):
    """And where the new prediction fails, the earlier one is not lost."""
    earlier = earlier_profile()
    context = resumed_context(earlier, training=TrainingOptions())
    monkeypatch.setattr(prediction_steps, "config_of_training", lambda *_: CONFIG)
    monkeypatch.setattr(
        prediction_steps, "_settings", lambda *_: [TrainingSetting("fp32", "none", (96, 96), True)]
    )
    session = Predicting()
    predict_training(context, session, sizes)
    assert session.asked is asked
    assert context.profile.memory_model == earlier.memory_model
    assert [w.code for w in context.profile.warnings] == (["memory_not_predicted"] if asked else [])


def test_the_record_of_a_search_outlives_the_prediction(monkeypatch):
    earlier = earlier_profile()
    earlier.recommend(search=SEARCH)
    context = resumed_context(earlier, training=TrainingOptions())
    monkeypatch.setattr(prediction_steps, "config_of_training", lambda *_: CONFIG)
    monkeypatch.setattr(
        prediction_steps, "_settings", lambda *_: [TrainingSetting("fp32", "none", (96, 96), True)]
    )
    predict_training(context, Predicting(), [1, 2])
    assert context.profile.recommendation.search == SEARCH
    assert context.profile.recommendation.inference == earlier.recommendation.inference
    # A table without what a replay takes is interpolated, and says so.
    assert context.profile.recommendation.training[0].source == "extrapolated"

"""Whatever a profile's file holds: every command that reads one uses it, or says in one line that it cannot."""

import contextlib
import io
import json

import pytest
from hypothesis import given

from swinmr_profiling.profiler.record.files.reading import ProfileFileError, load_profile
from swinmr_profiling.profiler.run.resume import ResumeError, read_earlier
from swinmr_profiling.scripts import compare_profiles, recommend_batch_size
from tests import made_profiles, training_profiles
from tests.conftest import REPOSITORY
from tests.properties.mutated_files import as_text, damaged, nearly

GOLDEN = [
    json.loads((REPOSITORY / "tests/golden" / f"{name}.json").read_text())
    for name in ("exception", "out_of_memory", "killed", "from_original_script", "on_a_gpu")
]
WITH_MODEL = training_profiles.profile(
    model=training_profiles.memory_model(),
    blocks={1: training_profiles.measured(1200), 2: training_profiles.failed()},
    gpu=training_profiles.gpu_of(24124),
)
PROFILES = [*GOLDEN, made_profiles.profile(), WITH_MODEL]


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return tmp_path_factory.mktemp("profiles") / "some.json"


def put(file, document):
    file.write_text(
        document if isinstance(document, str) else as_text(document), encoding="utf-8", errors="replace"
    )


def is_one_line(error):
    assert "\n" not in str(error)
    assert len(str(error)) < 2000
    str(error).encode("utf-8")


@given(document=nearly(PROFILES))
def test_loading(file, document):
    put(file, document)
    try:
        load_profile(file)
    except ProfileFileError as error:
        is_one_line(error)


@given(text=damaged([json.dumps(made_profiles.profile(), indent=1), json.dumps(GOLDEN[3])]))
def test_damaged_text(file, text):
    put(file, text)
    try:
        load_profile(file)
    except ProfileFileError as error:
        is_one_line(error)


def answers_or_refuses(main, arguments):
    """Runs a command in this process: any documented status, and 2 only with one line that says why."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main([str(argument) for argument in arguments])
    assert status in (0, 2, 3, 4)
    if status == 2:
        (line,) = err.getvalue().splitlines()
        assert line.startswith("error: ")
        is_one_line(line)


@pytest.mark.slow
@given(document=nearly([WITH_MODEL]))
def test_recommending(file, document):
    put(file, document)
    answers_or_refuses(recommend_batch_size.main, [file, "--gpu-memory", "24GiB"])


@pytest.mark.slow
@given(document=nearly([made_profiles.profile(), GOLDEN[0], GOLDEN[3]]))
def test_comparing(file, document):
    good = file.with_name("good.json")
    put(good, made_profiles.profile())
    put(file, document)
    written = [f"--{kind}={file.with_suffix('.' + kind)}" for kind in ("html", "markdown", "csv")]
    answers_or_refuses(compare_profiles.main, [good, file, *written])


@given(document=nearly([GOLDEN[0], GOLDEN[1], made_profiles.profile()]))
def test_resuming(file, document):
    put(file, document)
    try:
        earlier = read_earlier(file)
    except ResumeError as error:
        is_one_line(error)
    else:
        json.dumps(earlier.to_json(), allow_nan=False)

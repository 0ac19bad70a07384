"""The real command on hand-made profiles: its answers, its exit codes, its one line for every mistake."""

import json
import os
import subprocess
import sys

import pytest

from swinmr_profiling.configs import load_config
from swinmr_profiling.profiler.batch_size.budget import Budget
from swinmr_profiling.profiler.batch_size.training_recommendation import recommend_training
from swinmr_profiling.profiler.record.memory_fingerprint import memory_fingerprint
from tests.conftest import REPOSITORY, run_command
from tests.training_profiles import (
    failed,
    gpu_of,
    measured,
    memory_model,
    profile,
    replayed,
    setting,
    typed_model,
    typed_training,
)

# In GiB, so that no workspace or context of any table row changes what fits: reserved B GiB and 100 MiB.
ROOMY = {batch: (batch * 1024, batch * 1024 + 100) for batch in (1, 2, 4, 8, 16, 32)}


def roomy_model(**changes):
    settings = [
        replayed(80, 1024, is_config=True),
        replayed(100, 200, checkpointing="full"),
    ]
    return memory_model(settings=settings, **changes)


@pytest.fixture
def recommend(tmp_path):
    """Writes a profile and runs the command on it."""

    def run(content, *arguments):
        file = tmp_path / "profile.json"
        file.write_text(content if isinstance(content, str) else json.dumps(content))
        return run_command("scripts/recommend_batch_size.py", file, *arguments, cwd=tmp_path)

    return run


def refused(run, *words, code=2):
    assert run.returncode == code, (run.returncode, run.stdout, run.stderr)
    lines = run.stderr.splitlines()
    assert len(lines) == 1, run.stderr
    assert lines[0].startswith("error: ")
    for word in words:
        assert word in lines[0], lines[0]


def test_the_hand_made_profile_is_one(read_profile):
    read_profile(json.dumps(profile(model=roomy_model(), blocks={1: measured(1200), 2: failed()})))


def test_three_gpus_at_once(recommend):
    # Usable with 10 % headroom: RTX 3090 21.2 GiB, 24 GiB 21.6, 80 GiB 72. A batch takes about a GiB and at most one
    # more in all for context, workspaces and rounding.
    cards = ("--gpu", "RTX 3090", "--gpu-memory", "24GiB", "--gpu", "a100-sxm4-40gb")
    brief = recommend(profile(model=roomy_model()), *cards).stdout
    # Five lines a card and one between two, three above, and below the levers and what the prediction is of.
    assert brief.index("Predicted largest batch") > brief.index("A100 40GB")
    assert len(brief[: brief.index("Predicted largest batch")].splitlines()) == 2 + 3 * 6 + 1
    assert "none of 21 to 36 fits" not in brief
    run = recommend(profile(model=roomy_model()), *cards, "--verbose")
    assert run.returncode == 0, run.stderr
    assert max(map(len, run.stdout.splitlines())) <= 80
    assert run.stderr == ""
    text = run.stdout
    assert "GeForce RTX 3090: 23.56 GiB in all, 10 % headroom: 21.20 GiB usable" in text
    assert "24GiB GPU: 24.00 GiB in all" in text
    assert text.count("✓ batch 20 per device (predicted, not verified)") == 2
    assert "predicted, not yet verified on a GPU" in " ".join(text.split())
    # 21.2 and 21.6 GiB: a 21st needs 21.1 and context and workspaces, 0.4 GiB at least.
    assert "20 fits 21.20 GiB (10 % headroom), none of 21 to 36 fits" in " ".join(text.split())
    row = next(line for line in text.splitlines() if line.split()[:3] == ["fp32*", "none", "96x96"])
    # 0.9 x 39.49 = 35.54 GiB: 35 takes 35.1, and context and workspaces another 0.45.
    assert row.split()[3:] == ["20", "34", "20"]


def test_a_card_of_amd(recommend):
    run = recommend(profile(model=roomy_model()), "--gpu", "MI300X")
    assert run.returncode == 0, run.stderr
    assert "Instinct MI300X" in run.stdout


def test_a_profile_of_an_earlier_version_is_answered_with_its_label(recommend):
    own = setting(ROOMY, is_config=True)
    del own["allocations"]
    content = {**profile(model=memory_model(settings=[own])), "schema_version": 1}
    run = recommend(content, "--gpu", "RTX 3090", "--gpu-memory", "40GiB")
    assert run.returncode == 0, run.stderr
    assert "✓ batch 20 per device (extrapolated, not verified)" in run.stdout
    words = " ".join(run.stdout.split())
    assert "20 fits 21.20 GiB (10 % headroom) as interpolated from batches 1 to 32" in words
    assert "(the profile keeps no allocations to replay; run scripts/profile_model.py again)" in words
    # 35 x 1 GiB x 1.0061 (reserved / live at 16) and 0.6 at most are less than 36.
    assert "fp32* none 96x96 ~20 ~35" in words


def test_target_batch_and_reserved(recommend):
    # (24 - 4) x 0.9 = 18 GiB: 16 or 17 fit, of which 16 is a divisor.
    run = recommend(
        profile(model=roomy_model()), "--gpu-memory", "24GiB", "--reserved", "4GiB", "--target-batch", "64"
    )
    assert run.returncode == 0, run.stderr
    assert "4.00 GiB taken by others" in run.stdout
    assert "global batch 64: 16 per device x 4 accumulated x 1 device(s)" in run.stdout


def test_headroom(recommend):
    none = recommend(profile(model=roomy_model()), "--gpu-memory", "24GiB", "--headroom", "0%")
    half = recommend(profile(model=roomy_model()), "--gpu-memory", "24GiB", "--headroom", "0.5")
    assert "✓ batch 23 per device" in none.stdout
    assert "✓ batch 11 per device" in half.stdout
    assert "50 % headroom: 12.00 GiB usable" in half.stdout


@pytest.mark.slow
def test_nothing_fits_exits_3_and_names_the_lever(recommend):
    model = memory_model(
        settings=[
            setting({1: (30000, 31000)}, is_config=True),
            setting({1: (200, 210), 2: (400, 410)}, checkpointing="full"),
        ]
    )
    run = recommend(profile(model=model), "--gpu", "T4", "--write", "none.json")
    refused(run, "none.json", "no such file")
    run = recommend(profile(model=model), "--gpu", "T4")
    refused(run, "nothing fits any GPU named", code=3)
    assert "✗ no batch size can be recommended" in run.stdout
    assert "fits with fp32, full checkpointing, 96x96" in " ".join(run.stdout.split())
    # One GPU of two is enough.
    assert recommend(profile(model=model), "--gpu", "T4", "--gpu-memory", "80GB").returncode == 0


def test_the_gpu_of_the_profile_and_what_ran_on_it(recommend, read_profile):
    blocks = {1: measured(1200, 10.0), 2: measured(2300, 15.0), 4: measured(4400, 16.0), 8: failed()}
    content = profile(model=roomy_model(), blocks=blocks, gpu=gpu_of(24124))
    read_profile(json.dumps(content))
    run = recommend(content, "--training-samples", "3200")
    assert run.returncode == 0, run.stderr
    assert "NVIDIA GeForce RTX 3090: 23.56 GiB in all" in run.stdout
    assert "✓ batch 4 per device (measured, has run)" in run.stdout
    # 4 / 16 = 0.25 s a step; 3200 / 16 = 200 s.
    assert "time: 250.0 ms an optimizer step, 6.9 h per 100,000 steps" in run.stdout
    assert "epoch of 3,200 samples: 3.3 min" in run.stdout
    # What ran needs no prediction beside it.
    alone = recommend(profile(blocks=blocks, gpu=gpu_of(24124)))
    assert "✓ batch 4 per device (measured, has run)" in alone.stdout
    # Named, it is that very GPU, by its name or by its memory.
    for own in (("--gpu", "RTX 3090"), ("--gpu-memory", "24124MiB")):
        named = recommend(content, *own)
        assert "NVIDIA GeForce RTX 3090: 23.56 GiB in all" in named.stdout
        assert "✓ batch 4 per device (measured, has run)" in named.stdout
    # The same profile for another card is a prediction.
    for another in (("--gpu", "RTX 3090 Ti"), ("--gpu-memory", "24125MiB")):
        other = recommend(content, *another)
        assert "✓ batch 20 per device (predicted, not verified)" in other.stdout


@pytest.mark.slow
def test_what_others_held_when_the_profile_was_made(recommend, read_profile):
    """The search recommended what fits beside them; read from the file, so does this command."""
    blocks = {1: measured(1200), 6: measured(13_200), 7: measured(15_200)}
    own = Budget("NVIDIA GeForce RTX 3090", 24 * 2**30, 8 * 2**30, is_this_machine=True)
    entries = recommend_training(typed_model(roomy_model()), [own], measured=typed_training(blocks))
    content = profile(
        model=roomy_model(),
        blocks=blocks,
        gpu=gpu_of(24 * 1024),
        recommendation={"inference": None, "training": [entry.to_json() for entry in entries]},
    )
    read_profile(json.dumps(content))
    assert entries[0].batch_size == 6
    run = recommend(content)
    assert "✓ batch 6 per device (measured, has run)" in run.stdout
    assert "with 8.00 GiB of this GPU held by others" in " ".join(run.stdout.split())
    # Said on the command line, it is as the user says.
    freed = recommend(content, "--reserved", "0B")
    assert "✓ batch 7 per device (measured, has run)" in freed.stdout
    # A card that is elsewhere has its memory for itself.
    assert "taken by others" not in recommend(content, "--gpu", "L4").stdout


def test_a_failed_measurement_exits_4(recommend):
    blocks = {1: measured(3000), 2: measured(2000)}
    run = recommend(profile(model=roomy_model(), blocks=blocks, gpu=gpu_of(24124)))
    refused(run, "no batch size can be recommended", code=4)
    assert "the measurement failed: batch 2 took" in " ".join(run.stdout.split())


def test_resident_memory_of_a_cpu_run_is_no_gpu_memory(recommend):
    blocks = {1: measured(1200, peak_reserved_bytes=None, context_bytes=None)}
    refused(recommend(profile(blocks=blocks), "--gpu-memory", "24GiB"), "holds no training memory")


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["made without a GPU", "--gpu", "--gpu-memory"]),
        (["--gpu", "A100"], ["--gpu", "more than one card", '"A100 40GB"', '"A100 80GB SXM"']),
        (["--gpu", "RTX 3091"], ["--gpu", "nearest", "GeForce RTX 3090", "--list-gpus"]),
        (["--gpu-memory", "24"], ["--gpu-memory", "24GiB"]),
        (["--gpu-memory", "0GB"], ["--gpu-memory"]),
        (["--gpu", "T4", "--reserved", "some"], ["--reserved"]),
        (["--gpu", "T4", "--headroom", "100%"], ["--headroom", "10%"]),
        (["--gpu", "T4", "--headroom", "10"], ["--headroom"]),
        (["--gpu", "T4", "--headroom", "-1%"], ["--headroom"]),
        (["--gpu", "T4", "--target-batch", "0"], ["--target-batch"]),
        (["--gpu", "T4", "--target-batch", "64", "--devices", "3"], ["63 or 66"]),
        (["--gpu", "T4", "--devices", "0"], ["--devices"]),
        (["--gpu", "T4", "--gpu", "L4", "--write", "own.json"], ["--write", "name one GPU"]),
        (["--oops"], ["--oops"]),
    ],
)
def test_bad_arguments(recommend, arguments, words):
    run = recommend(profile(model=roomy_model()), *arguments)
    refused(run, *words)
    assert run.stdout == ""


def damaged(**changes):
    """A profile whose one setting is replayed, changed."""
    return profile(model=memory_model(settings=[{**replayed(80, 1024, is_config=True), **changes}]))


@pytest.mark.sampled(7)
@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", ["is not valid JSON"]),
        ("{", ["is not valid JSON"]),
        ("[]", ["is not a profile"]),
        ('{"schema_version": 3}', ["schema version 3", "update the program"]),
        ('{"schema_version": 1, "config": {}}', ["is damaged or of another version", "Field required"]),
        (
            profile(config_file="configs/own.json"),
            ["memory_model is null", "run scripts/profile_model.py --config configs/own.json --predict-only"],
        ),
        (profile(model={"settings": []}), ["memory_model.source: Field required"]),
        (
            profile(model=memory_model(settings=[])),
            ["memory_model.settings: List should have at least 1 item"],
        ),
        (
            profile(model=memory_model(settings=[setting({1: (1, 1)})])),
            ["memory_model: not one setting that is the config's"],
        ),
        (
            profile(model=memory_model(settings=[setting({}, is_config=True)])),
            ["memory_model.settings.0.sizes: Dictionary should have at least 1 item"],
        ),
        (
            profile(model=memory_model(settings=[setting({1: (0, 10)}, is_config=True)])),
            ["memory_model.settings.0.sizes.1.live_bytes: Input should be greater than or equal to 1"],
        ),
        (profile(model=[1]), ["damaged"]),
        (damaged(allocations={"sizes": "AAAA", "order": "AAAA"}), ["damaged", "allocations.sizes"]),
        (damaged(allocations={"order": "AAAA"}), ["damaged", "allocations.sizes: Field required"]),
        (damaged(allocations="AAAA"), ["damaged"]),
        (damaged(affine_from_batch=None), ["affine_from_batch is null"]),
        (damaged(affine_from_batch=4), ["3 is missing"]),
        (
            profile(model=memory_model(accumulate="2")),
            ["memory_model.accumulate: Input should be a valid integer"],
        ),
        (
            profile(model=roomy_model(), gpu={"name": "a card"}),
            ["environment.gpu.total_bytes: Field required"],
        ),
        (
            profile(blocks={1: measured(1200, process_bytes="much")}, gpu=gpu_of(24124)),
            ["batch_profiling.1.training.process_bytes: Input should be a valid integer"],
        ),
        ("[" * 100000, ["nested too deeply"]),
    ],
)
def test_files_that_are_no_profile(recommend, content, words):
    refused(recommend(content, "--gpu", "T4"), "profile.json", *words)


@pytest.mark.slow
def test_missing_files(tmp_path):
    run = run_command("scripts/recommend_batch_size.py", "none.json", "--gpu", "T4", cwd=tmp_path)
    refused(run, "none.json: no such file", "scripts/profile_model.py")
    refused(run_command("scripts/recommend_batch_size.py", tmp_path, "--gpu", "T4", cwd=tmp_path), "folder")
    refused(run_command("scripts/recommend_batch_size.py", cwd=tmp_path), "which profile?")


def test_list_of_gpus_and_help(tmp_path):
    run = run_command("scripts/recommend_batch_size.py", "--list-gpus", cwd=tmp_path)
    assert run.returncode == 0
    assert "GeForce RTX 3090" in run.stdout
    text = run_command("scripts/recommend_batch_size.py", "--help", cwd=tmp_path).stdout
    assert "GB is 10^9 bytes, GiB 2^30" in " ".join(text.split())
    assert "default 10%" in " ".join(text.split())


@pytest.mark.slow
def test_it_starts_without_torch(tmp_path):
    code = (
        "import sys; import swinmr_profiling.scripts.recommend_batch_size; sys.exit('torch' in sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "src")}
    assert (
        subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, timeout=60).returncode
        == 0
    )


@pytest.fixture
def own_config(tmp_path, tiny_config):
    """A config with comments, and the model of a profile that is of it."""
    file = tiny_config("own.json")
    raw = json.loads(file.read_text())
    body = json.dumps(raw["model"])
    file.write_text(
        '{\n  // my network\n  "model": ' + body + ',\n  "data": {\n    "use_patches": false,\n'
        '    "batch_size": 1   // too small\n  },\n  /* no training section */\n}\n'
    )
    return file, roomy_model(memory_fingerprint=memory_fingerprint(load_config(file).config))


def test_write_keeps_comments_and_sets_both_values(recommend, own_config):
    file, model = own_config
    arguments = ("--gpu-memory", "24GiB", "--target-batch", "64", "--write", file)
    run = recommend(profile(model=model), *arguments)
    assert run.returncode == 0, run.stderr
    # 20 fit; 16 divides 64.
    # The console wraps long lines.
    assert f"data.batch_size 16, training.accumulate 4 written to {file}" in " ".join(run.stdout.split())
    text = file.read_text()
    for comment in ("// my network", '"batch_size": 16   // too small', "/* no training section */"):
        assert comment in text
    config = load_config(file).config
    assert (config.data.batch_size, config.training.accumulate) == (16, 4)
    # Accumulation is what was written, so that the config is still the profile's.
    again = recommend(profile(model=model), "--gpu-memory", "24GiB", "--target-batch", "32", "--write", file)
    assert again.returncode == 0, again.stderr
    assert load_config(file).config.training.accumulate == 2
    assert [path.name for path in file.parent.iterdir() if path.name.startswith(".")] == []


def test_write_refuses_another_config(recommend, own_config):
    file, model = own_config
    before = file.read_text()
    run = recommend(profile(model={**model, "memory_fingerprint": "0" * 64}), "--gpu", "L4", "--write", file)
    refused(run, "own.json", "takes other memory", "scripts/profile_model.py --config")
    assert file.read_text() == before
    file.write_text(before.replace('"embed_dim": 12', '"embed_dim": 24'))
    refused(recommend(profile(model=model), "--gpu", "L4", "--write", file), "takes other memory")


def test_write_writes_nothing_where_nothing_fits(recommend, own_config):
    file, model = own_config
    before = file.read_text()
    run = recommend(profile(model=model), "--gpu-memory", "100MB", "--write", file)
    refused(run, "nothing fits", code=3)
    assert file.read_text() == before


@pytest.mark.slow
def test_write_refuses_what_it_cannot_edit(recommend, own_config, tmp_path):
    file, model = own_config
    broken = tmp_path / "broken.json"
    broken.write_text('{"model": ')
    refused(recommend(profile(model=model), "--gpu", "L4", "--write", broken), "broken.json")
    options = tmp_path / "options.json"
    options.write_text('{"netG": {"net_type": "swinir"}, "datasets": {"train": {}}, "train": {}}')
    refused(recommend(profile(model=model), "--gpu", "L4", "--write", options), "option file", "by hand")
    untraced = profile(blocks={1: measured(1200)}, gpu=gpu_of(24124))
    refused(recommend(untraced, "--write", file), "no memory_model")

"""`--resume`, and what an earlier run left at --output: a run that measured nothing new changes nothing of it."""

import json
import os
import signal
import time

import pytest

from tests.scripts.faulty_command import PATIENCE_S, SHORT_RUNS, Command, assert_measured, wait_for


@pytest.mark.slow
def test_resume_goes_on_where_a_signal_stopped(command, read_profile):
    run = command.run(fault="kill")
    assert run.returncode == 4
    before = read_profile(command.output)
    # The same config file, and a machine that now has the memory: a network that never fails.
    source = command.folder / "faulty_network.py"
    source.write_text(source.read_text().replace("os.kill(os.getpid(), signal.SIGKILL)", "return None"))
    run = command.run("--resume", fault="kill")
    assert run.returncode == 0, run.stderr
    after = read_profile(command.output)
    for size in ("1", "8"):
        assert after["batch_profiling"][size] == before["batch_profiling"][size]
    assert_measured(after, "4")
    assert after["status"] == "complete"
    assert after["environment"]["resumed_from_utc"] == before["environment"]["time_utc"]
    assert "Resumed: batch 1, 8" in run.stdout


@pytest.mark.slow
def test_an_interrupted_second_process_leaves_the_first_and_resume_takes_it_over(command, read_profile):
    options = {"fault": "hang_later", "sizes": "4", "runs": SHORT_RUNS}
    process = command.start(**options)
    deadline = time.monotonic() + PATIENCE_S
    while not (command.folder / "hangs").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 4
    before = read_profile(command.output)
    assert "SIGINT" in before["status_reason"]
    timing = before["batch_profiling"]["4"]["timing"]
    assert timing["notes"][0] == "1 of 3 processes: the run ended before the others"
    assert timing["num_runs"] == timing["runs_by_process"][0] >= 1
    run = command.run("--resume", **options)
    assert run.returncode == 0, run.stderr
    after = read_profile(command.output)
    assert after["batch_profiling"] == before["batch_profiling"]
    # Three processes of one image, taken over as they are.
    assert after["single_image"] == before["single_image"]
    assert after["single_image"]["timing"]["num_processes"] == 3


@pytest.mark.slow
def test_resume_refuses_another_config_and_another_file(command):
    assert command.run(sizes="1").returncode == 0
    run = command.run("--resume", fault="own_error")
    assert run.returncode == 2
    assert "--resume: the earlier profile has another config_sha256" in run.stderr
    command.output.write_text("{}")
    run = command.run("--resume")
    assert run.returncode == 2
    assert "is not a profile" in run.stderr
    assert command.output.read_text() == "{}"


@pytest.fixture(scope="module")
def complete(tmp_path_factory):
    """The folder of a run that measured batches 1 and 2, and the bytes of its profile."""
    made = Command(tmp_path_factory.mktemp("complete"))
    run = made.run(sizes="1,2")
    assert run.returncode == 0, run.stderr
    return made.folder, made.output.read_bytes()


class Again(Command):
    """The same command in the folder of a complete run."""

    def __init__(self, folder):
        super().__init__(folder)
        self.held = folder / "held"
        self.held.unlink(missing_ok=True)

    def network_that(self, line, where="self.scale = torch.nn.Identity()"):
        """Puts a line of code into the network, of the same config."""
        source = self.folder / "faulty_network.py"
        text = source.read_text()
        assert text.count(where) == 1
        source.write_text(text.replace(where, f"{where}\n        {line}"))

    def hold_torch(self):
        """Every process stops where it imports torch."""
        self.faults["hold_import"] = {"package": "torch", "file": str(self.held)}

    def held_process(self):
        """The process that has stopped, once it has."""
        deadline = time.monotonic() + PATIENCE_S
        while not (self.held.exists() and self.held.read_text()):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        return int(self.held.read_text())


@pytest.fixture
def again(complete):
    folder, profile = complete
    made = Again(folder)
    made.output.write_bytes(profile)
    yield made
    assert made.left_behind() == []


def ends(process):
    out, err = process.communicate(timeout=PATIENCE_S)
    assert "Traceback" not in err
    return process.returncode, out, err


RESUMED = pytest.mark.parametrize("options", [["--resume"], []], ids=["resumed", "anew"])


@pytest.mark.sampled(1)
@RESUMED
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_torch_is_imported_leaves_the_earlier_profile(again, complete, options, number):
    again.hold_torch()
    process = again.start(*options, "--report", str(again.folder / "report.html"), sizes="1,2")
    again.held_process()
    process.send_signal(number)
    code, out, _ = ends(process)
    assert code == 4
    assert f"interrupted by {number.name}" in out
    assert "stays as it was" in " ".join(out.split())
    assert again.output.read_bytes() == complete[1]
    assert not (again.folder / "report.html").exists()


@pytest.mark.sampled(1)
@RESUMED
def test_a_kill_of_the_worker_while_it_opens_leaves_the_earlier_profile(again, complete, options):
    again.hold_torch()
    process = again.start(*options, sizes="1,2")
    os.kill(again.held_process(), signal.SIGKILL)
    code, out, _ = ends(process)
    assert code == 4
    assert "SIGKILL" in out
    assert again.output.read_bytes() == complete[1]


@pytest.mark.sampled(1)
@RESUMED
def test_a_device_that_is_not_there_leaves_the_earlier_profile(again, complete, options):
    code, _, err = ends(again.start(*options, "--device", "cuda:99", sizes="1,2"))
    assert code == 2
    assert err.count("error: ") == 1
    assert again.output.read_bytes() == complete[1]


@pytest.mark.sampled(1)
@RESUMED
@pytest.mark.parametrize(("line", "code"), [('raise KeyError("scale")', 2), ("kill()", 4)])
def test_a_network_that_cannot_be_built_leaves_the_earlier_profile(again, complete, options, line, code):
    again.network_that(line)
    assert ends(again.start(*options, sizes="1,2"))[0] == code
    assert again.output.read_bytes() == complete[1]


# Before the answer nothing is printed: the network says itself how far it is. A resumed run has its counts.
BUILT = ("self.scale = torch.nn.Identity()", 'open("reached", "w").close(); hang()')
COUNTED = ("def forward(self, x):", 'x.is_meta and (open("reached", "w").close(), hang())')


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("options", "place"),
    [((), BUILT), (("--resume",), BUILT), ((), COUNTED)],
    ids=["built", "built, resumed", "counted"],
)
def test_a_signal_before_the_answer_leaves_the_earlier_profile(again, complete, options, place):
    where, line = place
    (again.folder / "reached").unlink(missing_ok=True)
    again.network_that(line, where)
    process = again.start(*options, sizes="1,2")
    deadline = time.monotonic() + PATIENCE_S
    while not (again.folder / "reached").exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert ends(process)[0] == 4
    assert again.output.read_bytes() == complete[1]


def hang_at(batch):
    return {
        "where": "def forward(self, x):",
        "line": f'hang() if x.shape[0] == {batch} and x.device.type != "meta" else None',
    }


@pytest.mark.slow
def test_counts_alone_replace_no_measurements(again, complete):
    """Without --resume: the network is counted, and the run interrupted within its first batch."""
    again.network_that(**hang_at(1))
    process = again.start(sizes="1,2")
    wait_for(process, "[4/5]")
    process.send_signal(signal.SIGTERM)
    assert ends(process)[0] == 4
    assert again.output.read_bytes() == complete[1]


@pytest.mark.slow
def test_crashes_alone_replace_no_measurements(again, complete):
    again.network_that(where="def forward(self, x):", line='kill() if x.device.type != "meta" else None')
    code, out, _ = ends(again.start(sizes="1,2"))
    assert code == 4
    assert "Nothing new was measured (failed: batch 1, batch 2)" in " ".join(out.split())
    assert again.output.read_bytes() == complete[1]


@pytest.mark.slow
def test_a_measurement_anew_replaces_the_earlier_ones(again, complete, read_profile):
    """Without --resume the file is the new run's as soon as that has something."""
    again.network_that(**hang_at(2))
    process = again.start(sizes="1,2")
    wait_for(process, "Testing batch size: 2")
    process.send_signal(signal.SIGTERM)
    assert ends(process)[0] == 4
    profile = read_profile(again.output)
    assert list(profile["batch_profiling"]) == ["1"]
    earlier = json.loads(complete[1])["batch_profiling"]["1"]["timing"]["samples_ms"]
    assert profile["batch_profiling"]["1"]["timing"]["samples_ms"] != earlier


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("sizes", "found"), [("1,2,4", ["1", "2"]), ("4,3", ["1", "2", "3"])])
def test_a_resumed_run_adds_to_the_earlier_one(again, complete, read_profile, sizes, found):
    again.network_that(**hang_at(4))
    process = again.start("--resume", sizes=sizes)
    wait_for(process, "Testing batch size: 4")
    process.send_signal(signal.SIGTERM)
    assert ends(process)[0] == 4
    profile, earlier = read_profile(again.output), json.loads(complete[1])
    assert list(profile["batch_profiling"]) == found
    for size in ("1", "2"):
        assert profile["batch_profiling"][size] == earlier["batch_profiling"][size]
    assert profile["architecture"] == earlier["architecture"]
    assert profile["status"] == ("complete" if found == ["1", "2"] else "partial")


def test_a_failure_is_written_beside_what_was_resumed(again, read_profile):
    """It costs nothing: all of the earlier run is in the new one."""
    again.network_that(
        where="def forward(self, x):", line='kill() if x.shape[0] == 4 and x.device.type != "meta" else None'
    )
    assert ends(again.start("--resume", sizes="1,4"))[0] == 4
    profile = read_profile(again.output)
    assert_measured(profile, "1", "2")
    assert profile["batch_profiling"]["4"]["error"] == "killed"
    assert profile["status_reason"] == "failed: batch 4"


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ({"schema_version": 1}, "is damaged or of another version (status: Field required)"),
        ({"schema_version": 1, "config": []}, "is damaged or of another version (status: Field required)"),
        ({"schema_version": 1, "config": {}}, "is damaged"),
    ],
)
def test_a_damaged_profile_is_one_line(again, damage, words):
    again.output.write_text(json.dumps(damage))
    code, _, err = ends(again.start("--resume", sizes="1,2"))
    assert code == 2
    (line,) = err.splitlines()
    assert line.startswith("error: --resume: ")
    assert words in line
    assert json.loads(again.output.read_text()) == damage

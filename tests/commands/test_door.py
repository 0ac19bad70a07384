"""`swinmr-profile`: its subcommands are the commands, from any folder; usage mistakes say what was meant."""

import json
import os
import subprocess
import sys

import pytest

from swinmr_profiling import program
from swinmr_profiling.init_configs import examples
from tests.conftest import REPOSITORY, TINY_SWINIR, run_command

START = "import sys; from swinmr_profiling.door import main; sys.exit(main())"
COMMANDS = [command.file for name, command in program.SUBCOMMANDS.items() if name != "init"]


def door(*arguments, cwd, **environment):
    """The console command as pip's wrapper starts it."""
    return subprocess.run(
        [sys.executable, "-c", START, *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY / "src"), **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_help_names_every_subcommand_and_a_slip_is_one_line(tmp_path):
    help_text = door("--help", cwd=tmp_path).stdout
    assert [line.split()[0] for line in help_text.splitlines()[2 : 2 + len(program.SUBCOMMANDS)]] == list(
        program.SUBCOMMANDS
    )
    slip = door("prfile", cwd=tmp_path)
    assert (slip.returncode, slip.stdout) == (2, "")
    assert slip.stderr == "error: no subcommand 'prfile': did you mean profile? (--help lists them)\n"
    assert door(cwd=tmp_path).returncode == 2


@pytest.mark.slow
def test_a_subcommand_speaks_of_subcommands(tmp_path):
    """What a message tells the user to type exists where he is: there is no scripts/ folder around."""
    run = door("recommend", "none.json", "--gpu", "RTX 3090", cwd=tmp_path)
    assert run.returncode == 2
    assert run.stderr == "error: none.json: no such file: swinmr-profile profile writes one\n"
    asked = door("compare", "--help", cwd=tmp_path)
    assert asked.stdout.startswith("usage: swinmr-profile compare [options]")


@pytest.mark.parametrize(
    ("said", "here"),
    [
        ("run scripts/profile_model.py --config x", "run swinmr-profile profile --config x"),
        ("python scripts/compare_profiles.py a b", "swinmr-profile compare a b"),
        ("train.py --restart", "swinmr-profile train --restart"),
        # A user's own files that end likewise.
        ("my_train.py and net/test.py", "my_train.py and net/test.py"),
    ],
)
def test_commands_in_messages(said, here, monkeypatch):
    assert program.in_this_program(said) == said
    monkeypatch.setattr(program, "_running", "profile")
    assert program.in_this_program(said) == here


def test_init_writes_the_examples_once(tmp_path):
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs/train_config.json").write_text("mine")
    run = door("init", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert (tmp_path / "configs/train_config.json").read_text() == "mine"
    assert "configs/train_config.json: is there, left as it is" in run.stdout
    names = {file.name for file in (REPOSITORY / "configs").glob("*.json")}
    assert {file.name for file in (tmp_path / "configs").iterdir()} == names == examples().keys()
    packaged = "configs/train_packaged.json"
    assert (tmp_path / packaged).read_text() == (REPOSITORY / packaged).read_text()


def test_init_beside_a_file_of_that_name(tmp_path):
    (tmp_path / "configs").touch()
    run = door("init", cwd=tmp_path)
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.startswith("error: configs: ")
    assert len(run.stderr.splitlines()) == 1


@pytest.mark.slow
def test_the_version_is_that_of_the_distribution(tmp_path):
    text = (REPOSITORY / "pyproject.toml").read_text()
    assert f'version = "{program.version()}"' in text
    assert door("--version", cwd=tmp_path).stdout == f"swinmr-profile {program.version()}\n"
    run = run_command("train.py", "--version", cwd=tmp_path)
    assert (run.returncode, run.stdout) == (0, f"train.py {program.version()}\n")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_mistyped_option_is_one_line_that_says_what_was_meant(command, tmp_path):
    option, typed = {
        "scripts/recommend_batch_size.py": ("--gpu-memory", "--gpu-memroy"),
        "scripts/compare_profiles.py": ("--markdown", "--markdwon"),
        "scripts/profile_pipeline.py": ("--pipeline", "--pipelnie"),
        "scripts/generate_image.py": ("--prompt", "--promtp"),
    }.get(command, ("--config", "--cofnig"))
    run = run_command(command, typed, "x", cwd=tmp_path)
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr == f"error: no option {typed}: did you mean {option}? (--help lists the options)\n"


@pytest.mark.sampled(4)
@pytest.mark.parametrize("command", [*COMMANDS, "scripts/check_on_gpu.py", "scripts/export_checkpoint.py"])
def test_help_fits_two_screens(command, tmp_path):
    run = run_command(command, "--help", cwd=tmp_path, env={**os.environ, "COLUMNS": "80"})
    assert run.returncode == 0
    lines = run.stdout.splitlines()
    assert len(lines) <= 100
    assert max(map(len, lines)) <= 80


def test_options_of_the_main_command_stand_in_groups(tmp_path):
    text = run_command("scripts/profile_model.py", "--help", cwd=tmp_path).stdout
    for group in ("which network:", "what is measured:", "what is counted:", "what is printed and written:"):
        assert f"\n{group}\n" in text


@pytest.mark.slow
def test_batch_sizes_apart_by_spaces(profile_model, tiny_config, tmp_path):
    run = profile_model(
        "--config", tiny_config(), "--batch-sizes", "1", "2", "--device", "cpu", "--num-runs", 2
    )
    assert run.returncode == 0, run.stderr
    profile = json.loads((tmp_path / "results/profile_results.json").read_text())
    assert list(profile["batch_profiling"]) == ["1", "2"]


@pytest.mark.parametrize("command", ["train.py", "test.py", "validate_setup.py"])
def test_a_config_that_is_not_there_is_one_line(command, tmp_path):
    run = run_command(command, "--config", "none.json", cwd=tmp_path)
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr == "error: none.json: no such file: check the path\n"


@pytest.mark.parametrize("command", ["scripts/profile_model.py", "train.py", "test.py", "validate_setup.py"])
@pytest.mark.parametrize("given", [("c.json",), ("--device", "cpu", "c.yml")])
def test_a_config_without_its_option_is_one_line(command, given, tmp_path):
    run = run_command(command, *given, cwd=tmp_path)
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr == (
        f"error: {given[-1]}: which option? For example --config {given[-1]} (--help lists the options)\n"
    )


@pytest.mark.parametrize(
    ("command", "options", "told"),
    [
        (
            "train.py",
            ["--device", "gpu"],
            "argument --device: 'gpu': one of auto, cpu, cuda, cuda:0, cuda:1, ...",
        ),
        ("test.py", ["--limit", "0"], "argument --limit: '0': a whole number of at least 1"),
        ("validate_setup.py", ["--timeout", "-1"], "argument --timeout: '-1': a positive number of seconds"),
        (
            "validate_setup.py",
            ["--timeout", "soon"],
            "argument --timeout: 'soon': a positive number of seconds",
        ),
        ("train.py", ["more"], "unrecognized arguments: more"),
        (
            "scripts/profile_model.py",
            ["--batch-sizes", "1", "2", "x"],
            "argument --batch-sizes: 'x' in '1,2,x'",
        ),
    ],
)
def test_usage_errors_have_one_manner(command, options, told, tmp_path):
    run = run_command(command, "--config", "c.json", *options, cwd=tmp_path)
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.startswith(f"error: {told}")
    assert run.stderr.endswith(" (--help lists the options)\n")
    assert len(run.stderr.splitlines()) == 1


def test_the_name_of_an_optimizer_as_torch_writes_it(tmp_path):
    (tmp_path / "c.json").write_text(
        json.dumps({"model": TINY_SWINIR, "training": {"optimizer": {"type": "AdamW"}}})
    )
    run = run_command("train.py", "--config", "c.json", cwd=tmp_path)
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.endswith('got "AdamW"; did you mean "adamw"?\n')
    assert len(run.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("line", "offered"),
    [("swinmr-profile pro", "profile"), ("swinmr-profile compare --mark", "--markdown")],
)
def test_completion_in_a_shell(line, offered, tmp_path):
    pytest.importorskip("argcomplete")
    answers = tmp_path / "answers"
    run = door(
        cwd=tmp_path,
        _ARGCOMPLETE="1",
        COMP_LINE=line,
        COMP_POINT=str(len(line)),
        COMP_TYPE="9",
        _ARGCOMPLETE_STDOUT_FILENAME=str(answers),
    )
    assert answers.read_text().split("\x0b") == [f"{offered} "], run.stderr

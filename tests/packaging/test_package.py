"""What the package holds, and that its modules have one name each."""

import ast
import subprocess
import sys
import zipfile

import pytest

from tests.conftest import REPOSITORY
from tests.packaging.conftest import ROOMS, tracked_files

SHORT = (*ROOMS, "scripts")
# What `swinmr-profile` runs; benchmarks and campaigns stay in the checkout.
COMMAND_FILES = (
    "train.py",
    "test.py",
    "validate_setup.py",
    "scripts/profile_model.py",
    "scripts/recommend_batch_size.py",
    "scripts/plan_training.py",
    "scripts/fit_inference.py",
    "scripts/compare_profiles.py",
    "scripts/profile_pipeline.py",
    "scripts/generate_image.py",
)


@pytest.mark.slow
def test_no_module_of_ours_is_imported_by_its_short_name():
    """`from models.x` would find a user's `models`, or ours a second time."""
    found = []
    for name in tracked_files():
        if not name.endswith(".py") or name.startswith("tests/packaging/"):
            continue
        for node in ast.walk(ast.parse((REPOSITORY / name).read_text(encoding="utf-8"))):
            modules = []
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                modules = [node.module]
            elif isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            found += [f"{name}:{node.lineno}" for module in modules if module.split(".")[0] in SHORT]
    assert found == []


def test_every_command_takes_its_folder_off_the_path():
    commands = [name for name in tracked_files() if name.startswith("scripts/") or "/" not in name]
    commands = [name for name in commands if name.endswith(".py") and name != "setup.py"]
    texts = {name: (REPOSITORY / name).read_text(encoding="utf-8") for name in commands}
    run = {name: text for name, text in texts.items() if 'if __name__ == "__main__":' in text}
    # Cases that benchmarks import; run by mistake they end at once.
    run = {name: text for name, text in run.items() if 'SystemExit("no command: ' not in text}
    assert {"train.py", "test.py", "validate_setup.py", "scripts/profile_model.py"} <= run.keys()
    missing = [name for name, text in run.items() if "\nimport swinmr_profiling.command" not in text]
    assert [name for name in missing if "swinmr_profiling" in texts[name]] == []


def test_the_wheel_has_every_file_of_the_rooms_and_no_other_top_level_name(wheel):
    with zipfile.ZipFile(wheel) as opened:
        held = {name for name in opened.namelist() if ".dist-info/" not in name}
    expected = {f"swinmr_profiling/{name}" for name in tracked_files() if name.split("/")[0] in ROOMS}
    expected = {name for name in expected if not name.endswith(".md")}
    own = {name.removeprefix("src/") for name in tracked_files() if name.startswith("src/")}
    commands = {f"swinmr_profiling/{name}" for name in COMMAND_FILES}
    assert held == expected | own | commands
    assert {
        "swinmr_profiling/profiler/batch_size/gpus.json",
        "swinmr_profiling/configs/pipelines/sd15.json",
        "swinmr_profiling/profiler/reports/html/templates/report.html.j2",
    } <= held


def python(code, **options):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False, **options
    )


def test_a_short_name_in_a_checkout_is_the_same_module(tmp_path):
    code = f"""
import sys
sys.path.insert(0, {str(REPOSITORY)!r})
from configs.errors import ConfigError
import configs, profiler.options.exit_codes
import swinmr_profiling.configs, swinmr_profiling.configs.errors, swinmr_profiling.profiler.options.exit_codes as long
assert configs is swinmr_profiling.configs
assert ConfigError is swinmr_profiling.configs.ConfigError
assert profiler.options.exit_codes is long
assert long.__spec__.name == long.__name__ == "swinmr_profiling.profiler.options.exit_codes"
try:
    import profiler.no_such_module
except ModuleNotFoundError as error:
    assert "no_such_module" in str(error)
else:
    raise SystemExit("found")
"""
    run = python(code, cwd=tmp_path)
    assert run.returncode == 0, run.stderr


@pytest.mark.slow
def test_the_import_of_the_readme(tmp_path):
    code = (
        "from profiler.compute import create_profiler\n"
        "import swinmr_profiling.profiler.compute as compute\n"
        "assert compute.create_profiler is create_profiler"
    )
    run = python(code, cwd=REPOSITORY)
    assert run.returncode == 0, run.stderr


def test_a_process_looks_where_its_parent_does(monkeypatch, tmp_path):
    """A user's PYTHONPATH decides which torch is measured, and it must be the same one in both."""
    from swinmr_profiling.process import python_command

    (tmp_path / "said.py").write_text(
        "import sys\ndef main():\n    print(sys.path, sys.argv[1:])\n    return 3\n"
    )
    places = [str(tmp_path), *sys.path]
    monkeypatch.setattr(sys, "path", places)
    run = subprocess.run(python_command("said", "a b"), capture_output=True, text=True, cwd=tmp_path)
    assert (run.stdout, run.returncode) == (f"{places} ['a b']\n", 3)


def test_an_installed_copy_never_stands_for_the_checkout(tmp_path):
    """After `pip install .` and a pull, the commands of the checkout run the checkout's code."""
    stale = tmp_path / "site/swinmr_profiling"
    stale.mkdir(parents=True)
    (stale / "__init__.py").write_text("raise SystemExit('the stale copy')")
    code = (
        f"import sys, runpy; sys.path.insert(0, {str(stale.parent)!r}); sys.argv = ['x', '--list-gpus']; "
        f"runpy.run_path({str(REPOSITORY / 'scripts/recommend_batch_size.py')!r}, run_name='__main__')"
    )
    run = python(code, cwd=tmp_path)
    assert "GeForce RTX 3090" in run.stdout, run.stderr


def test_a_script_that_imports_a_command_keeps_its_path(tmp_path):
    """Only our own commands are taken off: `generate_image` is there to be imported."""
    (tmp_path / "beside.py").touch()
    code = (
        f"import sys; sys.path.append({str(REPOSITORY / 'src')!r})\nimport swinmr_profiling.command, beside"
    )
    (tmp_path / "own.py").write_text(code)
    run = subprocess.run([sys.executable, tmp_path / "own.py"], capture_output=True, text=True, cwd="/")
    assert run.returncode == 0, run.stderr


@pytest.mark.slow
def test_what_is_read_from_the_checkout_is_known_without_it(installed, tmp_path):
    """The least versions come from the distribution's metadata; there is no commit, whatever repository is around."""
    code = (
        "from swinmr_profiling.training.setup.setup_software import minimum_versions\n"
        "from swinmr_profiling.profiler.measure.machine.environment import git_state\n"
        "print(minimum_versions()['torch'], minimum_versions()['h5py'], git_state())"
    )
    run = installed.run("-c", code, cwd=tmp_path)
    assert run.stdout.split() == ["2.9", "3.10", "None"], run.stderr

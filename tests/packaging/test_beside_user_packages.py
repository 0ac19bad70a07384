"""A user's repository with packages models, configs, training and utils, profiled and trained by our commands.

Its functions import inside their bodies, as in the worker and the prediction process. Each process that calls the
network notes what it has loaded from where.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from swinmr_profiling.configs import config_from_dict
from swinmr_profiling.models.errors import ModelError
from swinmr_profiling.models.registry import build_model
from tests.conftest import REPOSITORY
from tests.training.conftest import TINY_RUN

NETWORK = """
import torch


class Net(torch.nn.Conv2d):
    def __init__(self):
        from configs.widths import WIDTH
        super().__init__(1, 1, WIDTH, padding=WIDTH // 2)

    def forward(self, x):
        from training.scaling import SCALE
        from utils.notes import note
        note()
        return super().forward(x) * SCALE
"""
NOTES = """
import json, os, sys


def note():
    import swinmr_profiling
    from configs import widths
    from models import net
    from training import scaling

    names = {}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None) or ""
        # torch.ops says "_ops.py"; multiprocessing names the main module once more.
        if not os.path.isabs(file) or name == "__mp_main__":
            continue
        for place in swinmr_profiling.__path__:
            inside = os.path.relpath(os.path.realpath(file), os.path.realpath(place))
            if inside.split(os.sep)[0] not in ("..", ".venv", "venv", "tests"):
                names.setdefault(os.path.realpath(file), set()).add(name)
    with open(os.path.join(os.environ["NOTES"], f"{os.getpid()}.json"), "w") as file:
        said = {
            "process": " ".join(sys.orig_argv),
            "package": os.path.dirname(swinmr_profiling.__file__),
            "names": {file: sorted(names) for file, names in names.items()},
            "users": [module.__file__ for module in (widths, net, scaling, sys.modules[__name__])],
        }
        json.dump(said, file)
"""
OWN = {
    "models/net.py": NETWORK,
    "configs/widths.py": "WIDTH = 3\n",
    "training/scaling.py": "SCALE = 1.0\n",
    "utils/notes.py": NOTES,
}
QUICK = ("--device", "cpu", "--batch-sizes", "1", "--num-runs", "2", "--warmup", "0")


@pytest.fixture
def repository(tmp_path):
    """Writes the user's repository and a config in one of its folders; returns (repository, config)."""

    def write(regular=True, config_in="."):
        folder = tmp_path / "theirs"
        for name, text in OWN.items():
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
            if regular:
                (file.parent / "__init__.py").touch()
        model = {"net_type": "custom", "target": "models.net:Net", "input_shapes": [[1, 32, 32]]}
        config = folder / config_in / "own.json"
        config.parent.mkdir(parents=True, exist_ok=True)
        training = {"total_steps": 2, "validate_every_steps": 2}
        content = {
            **TINY_RUN,
            "model": model,
            "training": training,
            "paths": {"root": str(tmp_path / "runs")},
        }
        config.write_text(json.dumps(content))
        (tmp_path / "notes").mkdir()
        return folder, config

    return write


def check_notes(tmp_path, folder, installation, *processes):
    """Each process used the user's own modules, and each of ours once, from the right place, by its long name."""
    noted = [json.loads(file.read_text()) for file in (tmp_path / "notes").iterdir()]
    for part in processes:
        assert any(part in note["process"] for note in noted), [note["process"] for note in noted]
    for note in noted:
        assert note["package"] == str(installation.package)
        assert note["users"] == [
            str(folder / name)
            for name in ("configs/widths.py", "models/net.py", "training/scaling.py", "utils/notes.py")
        ]
        assert len(note["names"]) > 5
        for names in note["names"].values():
            assert len(names) == 1
            assert names[0].split(".")[0] in ("swinmr_profiling", "__main__")


# How the package is there, whether the user's packages have __init__.py, where the config lies, where the command is
# run: beside the config the network is found from anywhere, elsewhere from the working directory.
CASES = [
    ("checkout", False, ".", REPOSITORY),
    ("checkout", True, "settings", "theirs"),
    ("installed", True, "settings", "theirs"),
    ("editable", False, ".", "/"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "regular", "config_in", "run_in"), CASES)
def test_profiled_and_trained(request, repository, tmp_path, kind, regular, config_in, run_in):
    installation = request.getfixturevalue(kind)
    folder, config = repository(regular, config_in)
    common = {"cwd": tmp_path / run_in, "NOTES": tmp_path / "notes", "OMP_NUM_THREADS": 1}

    command = installation.commands / "scripts/profile_model.py"
    output = tmp_path / "profile.json"
    options = ("--config", config, "--trust-config", "--output", output)
    run = installation.run(command, *options, *QUICK, **common)
    assert run.returncode == 0, run.stderr
    profile = json.loads(output.read_text())
    assert profile["status"] == "complete"
    assert profile["architecture"]["macs"] == 32 * 32 * 9
    assert profile["architecture"]["total_parameters"] == 10
    assert profile["memory_model"]["settings"]
    parts = ("profiler.isolation.worker", "prediction.server", "cross_check_process")
    check_notes(tmp_path, folder, installation, *parts)

    run = installation.run(
        installation.commands / "train.py", "--config", config, "--trust-config", "--device", "cpu", **common
    )
    assert run.returncode == 0, run.stderr
    assert "step 2 of 2" in run.stdout
    check_notes(tmp_path, folder, installation, "train.py")

    run = installation.run(
        installation.commands / "test.py", "--config", config, "--trust-config", "--device", "cpu", **common
    )
    assert run.returncode == 0, run.stderr
    check_notes(tmp_path, folder, installation, "test.py")


@pytest.mark.slow
def test_trained_on_two_processes(checkout, repository, tmp_path):
    folder, config = repository(regular=False)
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    run = checkout.run(
        *(*torchrun, REPOSITORY / "train.py", "--config", config, "--trust-config", "--device", "cpu"),
        cwd=REPOSITORY,
        NOTES=tmp_path / "notes",
        OMP_NUM_THREADS=1,
    )
    assert run.returncode == 0, run.stderr
    assert "step 2 of 2" in run.stdout
    assert len(list((tmp_path / "notes").iterdir())) == 2
    check_notes(tmp_path, folder, checkout, "train.py")


@pytest.mark.slow
def test_the_checkout_named_on_pythonpath_shadows_nothing(checkout, repository, tmp_path):
    folder, config = repository(regular=False)
    run = checkout.run(
        *(
            REPOSITORY / "scripts/profile_model.py",
            "--config",
            config,
            "--trust-config",
            *QUICK,
            "--no-training",
        ),
        *("--output", tmp_path / "profile.json"),
        cwd=REPOSITORY,
        NOTES=tmp_path / "notes",
        PYTHONPATH=REPOSITORY,
    )
    assert run.returncode == 0, run.stderr
    check_notes(tmp_path, folder, checkout, "profiler.isolation.worker")


def loaded_from(folder):
    """The module of the network models.net:Net of a config in a folder."""
    model = {"net_type": "custom", "target": "models.net:Net", "input_shapes": [[1, 8, 8]]}
    return type(build_model(config_from_dict({"model": model}, folder), trust_config=True).module).__module__


@pytest.fixture
def no_models(monkeypatch):
    """Nothing called `models` is loaded or, from the tests' own path, found; afterwards as before."""
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if Path(entry).resolve() != REPOSITORY])
    theirs = [name for name in sys.modules if name.split(".")[0] in ("models", "configs")]
    for name in theirs:
        monkeypatch.delitem(sys.modules, name)

    def forget():
        for name in [name for name in sys.modules if name.split(".")[0] in ("models", "configs")]:
            del sys.modules[name]

    yield forget
    forget()


def test_another_package_of_the_name_is_refused_by_name(repository, tmp_path, monkeypatch, no_models):
    """Some distributions install a top-level `models`: what it hides is not measured by mistake."""
    folder, _ = repository()
    stray = tmp_path / "stray/models"
    stray.mkdir(parents=True)
    (stray / "__init__.py").touch()
    monkeypatch.syspath_prepend(stray.parent)
    words = f"{folder}/models/net.py is hidden by another models that Python finds first, in {stray}"
    with pytest.raises(ModelError, match=re.escape(words)):
        loaded_from(folder)
    # The stray package has a module of this name, too: it would have been the wrong network.
    (stray / "net.py").write_text(NETWORK)
    no_models()
    with pytest.raises(ModelError, match=re.escape(words)):
        loaded_from(folder)
    sys.path.remove(str(stray.parent))
    no_models()
    assert loaded_from(folder) == "models.net"


OUR_OWN = f"""
import os, sys
sys.path.insert(0, {str(REPOSITORY / "src")!r})
from swinmr_profiling.configs import config_from_dict
from swinmr_profiling.models.errors import ModelError
from swinmr_profiling.models.registry import build_model

for folder in (sys.argv[1], {str(REPOSITORY)!r}):
    os.chdir(folder)
    model = {{"net_type": "custom", "target": "models.swin.windows:NoSuchClass", "input_shapes": [[1, 8, 8]]}}
    try:
        build_model(config_from_dict({{"model": model}}, sys.argv[1]), trust_config=True)
    except ModelError as error:
        print(error)
"""


@pytest.mark.slow
def test_a_network_kept_in_the_checkout_is_found_once(tmp_path):
    """`models.x` is ours only in the checkout itself, and then the module that is loaded already."""
    # Isolated: the working directory is on the path only as far as build_model puts it there.
    command = [sys.executable, "-I", "-c", OUR_OWN, str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120)
    elsewhere, in_the_checkout = run.stdout.splitlines()
    assert "No module named 'models'" in elsewhere
    assert "module 'swinmr_profiling.models.swin.windows' has no attribute 'NoSuchClass'" in in_the_checkout

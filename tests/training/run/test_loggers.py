"""Training figures in Weights & Biases and MLflow: real packages, offline, read back by their own readers."""

import json
import sys
from unittest import mock

import pytest
import torch

from swinmr_profiling.training.errors import DataError
from swinmr_profiling.training.run.run_log import LOGGERS, RunLog


def log_of(folder, *loggers, **options):
    log = RunLog(
        folder, tensorboard=False, images=True, loggers=loggers, name="tiny", config={"a": 1}, **options
    )
    log.record("training", 1, loss=0.5)
    log.record("training", 2, loss=0.25, learning_rate=1e-3)
    log.image("validation", 2, torch.zeros(1, 4, 12))
    log.close()


@pytest.fixture(autouse=True)
def _offline(monkeypatch, tmp_path):
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME", "WANDB_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    for name in ("WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "wandb_own"))
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    # Newer releases want to be asked for files in place of a database.
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")


@pytest.mark.slow
def test_mlflow_has_the_figures(tmp_path):
    from mlflow.tracking import MlflowClient

    log_of(tmp_path / "logs", "mlflow")
    client = MlflowClient(tracking_uri=(tmp_path / "logs" / "mlruns").as_uri())
    run_id = (tmp_path / "logs" / "mlflow_run_id.txt").read_text().strip()
    history = client.get_metric_history(run_id, "training/loss")
    assert [(one.step, one.value) for one in history] == [(1, 0.5), (2, 0.25)]
    assert client.get_run(run_id).info.status == "FINISHED"
    # A resumed run goes on in the same one; one that starts anew has another.
    log_of(tmp_path / "logs", "mlflow", first_step=2)
    assert len(client.get_metric_history(run_id, "training/loss")) == 4
    log_of(tmp_path / "logs", "mlflow", anew=True)
    assert (tmp_path / "logs" / "mlflow_run_id.txt").read_text().strip() != run_id


def records_of(content):
    """Records of an offline run: LevelDB's log format (7 bytes in front; blocks of 32 KiB; CRC, length, kind)."""
    place, parts = 7, []
    while place + 7 <= len(content):
        if (left := 32768 - place % 32768) < 7:
            place += left
            continue
        length, kind = int.from_bytes(content[place + 4 : place + 6], "little"), content[place + 6]
        parts.append(content[place + 7 : place + 7 + length])
        place += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield b"".join(parts)
            parts = []


@pytest.mark.slow
def test_wandb_has_the_figures(tmp_path):
    from wandb.proto import wandb_internal_pb2

    log_of(tmp_path / "logs", "wandb")
    [file] = (tmp_path / "logs" / "wandb").glob("offline-run-*/*.wandb")
    losses = []
    for data in records_of(file.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        row = {
            item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item
        }
        if "training/loss" in row:
            losses.append((row["step"], row["training/loss"]))
    assert losses == [(1, 0.5), (2, 0.25)]
    assert (tmp_path / "logs" / "wandb_run_id.txt").read_text().strip() in file.name


def test_what_a_service_raises_stops_nothing(tmp_path, capsys, monkeypatch):
    class Gone:  # a stand-in: a service that goes away
        def __init__(self, folder, name, config):
            assert (name, config) == ("tiny", {"a": 1})

        def scalar(self, name, value, step):
            raise ConnectionError("the network is gone\nsecond line")

        def image(self, name, image, step):
            raise AssertionError("asked after it has failed")

        close = image

    monkeypatch.setitem(LOGGERS, "wandb", Gone)
    log_of(tmp_path, "wandb")
    assert len((tmp_path / "log.jsonl").read_text().splitlines()) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "wandb takes no more figures (the network is gone): they are in log.jsonl" in told


def test_a_service_that_is_named_twice_begins_once(tmp_path, monkeypatch):
    begun = []

    def begin(folder, name, config):
        begun.append(name)
        return mock.Mock()

    monkeypatch.setitem(LOGGERS, "wandb", begin)
    log_of(tmp_path, "wandb", "wandb")
    assert begun == ["tiny"]


def test_a_service_that_does_not_begin_ends_the_run_before_its_first_step(tmp_path, monkeypatch):
    def refuse(folder, name, config):
        raise ValueError("no API key configured")

    monkeypatch.setitem(LOGGERS, "wandb", refuse)
    with pytest.raises(DataError, match=r"logging.loggers: wandb does not begin: no API key configured"):
        log_of(tmp_path, "wandb")


@pytest.mark.parametrize("logger", ["wandb", "mlflow"])
def test_a_missing_package_says_its_extra(tmp_path, monkeypatch, logger):
    monkeypatch.setitem(sys.modules, logger, None)
    with pytest.raises(
        DataError, match=r'needs the package (wandb|mlflow-skinny): pip install ".\[loggers\]"'
    ):
        log_of(tmp_path, logger)

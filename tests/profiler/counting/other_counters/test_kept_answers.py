"""What other counters said is kept with the network, the code and the versions, and with nothing less."""

import json

import pytest

from swinmr_profiling.configs import config_from_dict
from swinmr_profiling.profiler.counting.other_counters import kept_answers
from swinmr_profiling.profiler.counting.other_counters.kept_answers import kept_cross_check
from swinmr_profiling.profiler.record.blocks.architecture import CrossCheck
from tests.conftest import TINY_SWINIR


def config(net=None, **sections):
    return config_from_dict({"model": {**TINY_SWINIR, **(net or {})}, **sections})


class Counters:
    """In the place of the processes: what they were asked, and an answer for each."""

    def __init__(self):
        self.asked, self.status = [], "ok"

    def __call__(self, raw, *, counters, size, trust_config):
        self.asked += [(counter, size) for counter in counters]
        return [
            CrossCheck.told(
                counter=counter,
                status=self.status,
                size=size,
                convention="",
                inexact=False,
                figure=None if self.status != "ok" else 7.0,
                ours=7,
                seconds=3.0,
            )
            for counter in counters
        ]


@pytest.fixture
def counters(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    made = Counters()
    monkeypatch.setattr(kept_answers, "cross_check", made)
    return made


def asked(which, counters=("fvcore", "thop"), size="small", keep=True):
    return kept_cross_check(which, counters=counters, size=size, trust_config=False, keep=keep)


def test_the_second_run_asks_nobody_and_says_so(counters):
    first = asked(config())
    second = asked(config(training={"epochs": 3}))  # says nothing of the network
    assert counters.asked == [("fvcore", "small"), ("thop", "small")]
    assert [check.from_earlier_run for check in first] == [None, None]
    assert [check.from_earlier_run for check in second] == [True, True]
    assert [check.model_copy(update={"from_earlier_run": None}) for check in second] == first


@pytest.mark.parametrize(
    "changed",
    [
        lambda patch: asked(config({"embed_dim": 14})),
        lambda patch: asked(config(), size="full"),
        lambda patch: asked(config(), keep=False),
        lambda patch: (patch.setattr(kept_answers, "version", lambda name: "0.0"), asked(config())),
        lambda patch: (patch.setattr(kept_answers, "code_hash", lambda places: "other"), asked(config())),
        lambda patch: (patch.setattr("platform.python_version", lambda: "3.9"), asked(config())),
    ],
    ids=["network", "size", "--no-cache", "versions", "code", "Python"],
)
def test_what_is_not_the_same_is_asked_anew(counters, monkeypatch, changed):
    asked(config())
    changed(monkeypatch)
    assert len(counters.asked) == 4


def test_only_the_counter_without_an_answer_is_asked_and_the_order_stays(counters):
    asked(config(), counters=("thop",))
    checks = asked(config())
    assert counters.asked == [("thop", "small"), ("fvcore", "small")]
    assert [(check.counter, check.from_earlier_run) for check in checks] == [("fvcore", None), ("thop", True)]


def test_a_network_that_may_change_unseen_is_asked_each_time(counters, tmp_path):
    foreign = config_from_dict({"model": {"net_type": "timm", "name": "resnet18"}})
    asked(foreign)
    asked(foreign)
    assert len(counters.asked) == 4
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("status", ["killed", "timeout", "raised", "missing"])
def test_what_failed_is_asked_again(counters, status):
    counters.status = status
    asked(config())
    asked(config())
    assert len(counters.asked) == 4


@pytest.mark.parametrize("damage", ["", "{", "[]", "null", "\xff", "other"])
def test_a_damaged_file_is_asked_again_and_replaced(counters, tmp_path, damage):
    asked(config(), counters=("thop",))
    (file,) = (tmp_path / "cache/swinmr-profiling/counters").glob("*.json")
    whole = file.read_text()
    other = json.dumps({**json.loads(whole), "counter": "fvcore"})  # a file under another's name
    file.write_bytes((other if damage == "other" else damage).encode("latin-1"))
    (check,) = asked(config(), counters=("thop",))
    assert (check.counter, check.from_earlier_run, len(counters.asked)) == ("thop", None, 2)
    assert file.read_text() == whole


def test_a_disk_that_refuses_costs_nothing_but_time(counters, tmp_path):
    (tmp_path / "cache").write_text("no folder")
    assert [check.figure for check in asked(config())] == [7.0, 7.0]

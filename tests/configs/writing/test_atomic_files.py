"""Writing a file: through links, with its permissions, and never in the place of what is not a file."""

import os
import socket
import stat
import subprocess
import sys

import pytest

from swinmr_profiling.configs.writing.atomic_files import OutputError, check_writable, replacing, write_text
from tests.conftest import REPOSITORY
from tests.no_files import KINDS, put


@pytest.fixture
def target(tmp_path):
    """An old file in another folder than the link that the test writes to."""
    file = tmp_path / "store" / "old.json"
    file.parent.mkdir()
    file.write_text("old")
    return file


def test_a_link_stays_and_its_target_is_replaced(tmp_path, target):
    (tmp_path / "first").symlink_to("second")
    (tmp_path / "second").symlink_to("store/old.json")
    check_writable(tmp_path / "first", "--csv")
    assert target.read_text() == "old"
    write_text(tmp_path / "first", "new")
    assert (os.readlink(tmp_path / "first"), os.readlink(tmp_path / "second")) == ("second", "store/old.json")
    assert target.read_text() == "new"
    assert sorted(os.listdir(tmp_path)) == ["first", "second", "store"]
    assert os.listdir(target.parent) == ["old.json"]


def test_a_dangling_link_makes_its_target(tmp_path):
    (tmp_path / "link").symlink_to("not/yet/there.csv")
    check_writable(tmp_path / "link", "--csv")
    write_text(tmp_path / "link", "new")
    assert os.readlink(tmp_path / "link") == "not/yet/there.csv"
    assert (tmp_path / "not/yet/there.csv").read_text() == "new"
    assert os.listdir(tmp_path / "not/yet") == ["there.csv"]


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664, 0o755])
@pytest.mark.parametrize("through_link", [False, True])
def test_permissions_stay(tmp_path, target, mode, through_link):
    target.chmod(mode)
    (tmp_path / "link").symlink_to(target)
    write_text(tmp_path / "link" if through_link else target, "new")
    assert target.read_text() == "new"
    assert stat.S_IMODE(target.stat().st_mode) == mode


def test_the_owner_stays(target, monkeypatch):
    """Only root can give a file away; anybody else asks and goes on."""
    given = []

    def chown(file, user, group):
        given.append((user, group))
        raise PermissionError

    monkeypatch.setattr(os, "chown", chown)
    write_text(target, "new")
    assert given == [(target.stat().st_uid, target.stat().st_gid)]
    assert target.read_text() == "new"


@pytest.mark.parametrize("through_link", [False, True])
def test_what_fails_while_writing_leaves_the_old_file_and_nothing_else(tmp_path, target, through_link):
    (tmp_path / "link").symlink_to(target)

    def write():
        with replacing(tmp_path / "link" if through_link else target) as temporary:
            temporary.write_text("half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write()
    assert target.read_text() == "old"
    assert os.listdir(target.parent) == ["old.json"]
    assert sorted(os.listdir(tmp_path)) == ["link", "store"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("through_link", [False, True])
def test_what_is_no_file_is_refused_before_and_while_writing(tmp_path, kind, through_link):
    place = tmp_path / "place"
    check_untouched = put(kind, place)
    name = place
    if through_link:
        name = tmp_path / "link"
        name.symlink_to("place")
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(OutputError) as caught:
        check_writable(name, "--csv")
    words = "is a folder; name a file in it" if kind == "folder" else "is not an ordinary file"
    assert str(caught.value) == f"--csv {name}: {words}"
    with pytest.raises(OSError, match=words):
        write_text(name, "new")
    check_untouched()
    assert sorted(os.listdir(tmp_path)) == before


def test_the_file_that_the_command_prints_to_is_refused(tmp_path):
    """`--csv /dev/stdout > report.txt` would put the CSV in the place of all that is printed."""
    code = (
        "import sys; from swinmr_profiling.configs.writing.atomic_files import check_writable\n"
        "print('a figure', flush=True)\n"
        "try: check_writable(sys.argv[1], '--csv')\n"
        "except ValueError as error: print(error, flush=True)\n"
        "else: print('not refused')\n"
    )
    for name in ("/dev/stdout", str(tmp_path / "report.txt")):
        with (tmp_path / "report.txt").open("w") as printed:
            subprocess.run(
                [sys.executable, "-c", code, name],
                stdout=printed,
                cwd=tmp_path,
                env={**os.environ, "PYTHONPATH": str(REPOSITORY / "src")},
                check=True,
                timeout=60,
            )
        first, second = (tmp_path / "report.txt").read_text().splitlines()
        assert first == "a figure"
        assert second == f"--csv {name}: is where this command's own output goes"


def test_links_in_a_circle_are_refused(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OutputError, match=r"--csv .*a: cannot be written: Too many levels of symbolic links"):
        check_writable(tmp_path / "a", "--csv")
    with pytest.raises(OSError, match="Too many levels"):
        write_text(tmp_path / "a", "new")
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


def test_a_name_that_is_no_valid_text_is_written_as_json_writes_it(tmp_path):
    """The name of a file on disk may be any bytes; Python hands them over as lone surrogates."""
    write_text(tmp_path / "p.json", '{"config": "caf\udce9.json"}\r\n')
    assert (tmp_path / "p.json").read_bytes() == b'{"config": "caf\\udce9.json"}\r\n'


def test_a_socket_that_listens_still_does(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a socket's name may have 107 bytes
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("door")
        listening.listen()
        with pytest.raises(OSError, match="not an ordinary file"):
            write_text(tmp_path / "door", "new")
        with socket.socket(socket.AF_UNIX) as calling:
            calling.connect("door")

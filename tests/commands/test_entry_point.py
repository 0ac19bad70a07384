"""What every command's `main` does with its arguments and with what the user is to mend."""

import sys

import pytest

from swinmr_profiling.command import EXIT_BAD_INPUT, EXIT_INTERRUPTED, entry_point
from swinmr_profiling.input_error import InputError
from swinmr_profiling.profiler.options import exit_codes


class OwnError(InputError):
    """One that no command names."""


def test_what_the_user_is_to_mend_is_one_line_and_status_2(capsys):
    @entry_point
    def main(arguments):
        raise OwnError(f"{arguments[0]} is no number")

    assert main(["x"]) == 2
    assert capsys.readouterr() == ("", "error: x is no number\n")


def test_another_error_is_not_called_the_users():
    @entry_point
    def main(arguments):
        raise ValueError("a mistake of ours")

    with pytest.raises(ValueError, match="a mistake of ours"):
        main([])


def test_arguments_are_the_process_s_where_none_are_given(monkeypatch):
    @entry_point
    def main(arguments):
        return len(arguments)

    monkeypatch.setattr(sys, "argv", ["command", "--config", "x"])
    assert main() == 2
    assert main([]) == 0


def test_the_numbers_are_the_documented_ones():
    assert exit_codes.EXIT_BAD_INPUT == EXIT_BAD_INPUT
    assert exit_codes.EXIT_PARTIAL == EXIT_INTERRUPTED

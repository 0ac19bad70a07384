"""Runs train.py in two processes that train together, forked from this one; exits with the larger exit status.

In place of torchrun where a test is about what the two agree on: torchrun starts three interpreters.
"""

import os
import runpy
import socket
import sys
import traceback

TRAIN = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "train.py")


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def main():
    os.environ.update(WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()))
    processes = []
    for rank in range(2):
        pid = os.fork()
        if pid == 0:
            os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
            sys.argv = [TRAIN, *sys.argv[1:]]
            status = 1
            try:
                runpy.run_path(TRAIN, run_name="__main__")
            except SystemExit as leaving:
                status = leaving.code
            except BaseException:
                traceback.print_exc()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
        processes.append(pid)
    statuses = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in processes]
    print("statuses", *statuses)
    sys.exit(max(statuses))


if __name__ == "__main__":
    main()

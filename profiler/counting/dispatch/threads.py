"""A dispatch mode that also holds in the threads to which the code inside it hands work.

A dispatch mode holds in the thread that entered it, and an operator that runs in another passes it unseen. So, while
such a mode is entered, the ways in which Python code hands work over are wrapped: starting a ``threading.Thread``, and
giving a task to a ``ThreadPoolExecutor`` or a ``multiprocessing.pool.ThreadPool``, also to one made before
(``asyncio.to_thread`` and ``torch.nn.parallel`` use these). Only what a thread under the mode hands over is taken
along; other threads of the process are none of its business. A thread made before that takes work from a queue of its
own cannot be followed: modules of the network that run in one are listed (see module_tree.py), single operators are
not seen.

The ways of values out of PyTorch are wrapped with them. (Under a mode of ``__torch_function__``, which would see them,
PyTorch leaves its fast paths.)
"""

import copy
import functools
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from multiprocessing.pool import ThreadPool
from typing import Any
from unittest import mock

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack
from typing_extensions import Self

# Methods whose first argument is a function that another thread is going to run.
TASKS = (
    (ThreadPoolExecutor, ("submit",)),
    (
        ThreadPool,
        ("apply", "apply_async", "map", "map_async", "starmap", "starmap_async", "imap", "imap_unordered"),
    ),
)
# Methods that start the threads of a pool, which serve whoever gives them a task.
STARTS_WORKERS = ((ThreadPoolExecutor, "submit"), (ThreadPool, "__init__"))
# Of tensors: to NumPy, to Python, and to any other library (JAX, CuPy).
WAYS_OUT = ("numpy", "tolist", "__dlpack__")


class ThreadFollowingMode(TorchDispatchMode):
    """Base of a mode whose work in other threads is done by ``twin()``s of it.

    Attributes:
        thread_errors: what functions raised in other threads, where nobody may be listening.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.thread_errors: list[BaseException] = []
        self._followed_depth = 0
        # Shared by the twins: threads started, tasks given, and the threads in which an operator ran.
        self._started: list[threading.Thread] = []
        self._tasks: list[weakref.ref[Any]] = []
        self._ran_in: set[int] = set()

    def twin(self) -> Self:
        """The same mode for another thread, with the same tallies: a mode object keeps the state of one thread."""
        twin = copy.copy(self)
        TorchDispatchMode.__init__(twin)
        twin._followed_depth = 0
        return twin

    def handed_over(self) -> Callable[[], AbstractContextManager[Callable[[Any], object]]]:
        """Called where work is handed over: makes the context in which the other thread is to do it.

        The context gives a function, which is told the result.
        """
        return lambda: nullcontext(lambda result: None)

    def left_pytorch(self, way: str, tensor: torch.Tensor) -> None:
        """Called where a tensor goes one of the ways out."""

    def raise_from_threads(self) -> None:
        """Raises the first error of another thread, if there was one."""
        if self.thread_errors:
            raise self.thread_errors[0]

    def unfinished(self) -> list[str]:
        """Work handed over that has not ended: what is still to come is not counted. In words, for a listing."""
        threads = [
            thread
            for thread in self._started
            # A monitor that sleeps beside the work is not part of it.
            if thread.is_alive() and (thread.ident in self._ran_in or not thread.daemon)
        ]
        tasks = [
            task for reference in self._tasks if (task := reference()) is not None and not _is_done(task)
        ]
        return [f"thread {thread.name}" for thread in threads] + ["task of a thread pool" for _ in tasks]

    def carried(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, to be run in another thread under this mode."""
        context = self.handed_over()

        def run(*args: Any, **kwargs: Any) -> Any:
            # One method of a pool may call another: entered twice, the mode would count twice.
            entered = mode_of_this_thread() is not None
            try:
                with context() as told, nullcontext() if entered else self.twin():
                    result = function(*args, **kwargs)
                    told(result)
                    return result
            except BaseException as error:
                if not entered:
                    self.thread_errors.append(error)
                raise

        return run

    def __enter__(self) -> Any:
        # A mode is entered within itself, too.
        if not self._followed_depth:
            _wrapping.start()
        self._followed_depth += 1
        return super().__enter__()  # type: ignore[no-untyped-call]

    def __exit__(self, *exception: Any) -> None:
        super().__exit__(*exception)  # type: ignore[no-untyped-call]
        self._followed_depth -= 1
        if not self._followed_depth:
            _wrapping.stop()


def mode_of_this_thread() -> ThreadFollowingMode | None:
    """The innermost such mode that this thread is under."""
    stack = _get_current_dispatch_mode_stack()
    return next((mode for mode in reversed(stack) if isinstance(mode, ThreadFollowingMode)), None)


def _is_done(task: Any) -> bool:
    # A Future, or an AsyncResult; an iterator over results is not asked.
    is_done = getattr(task, "done", None) or getattr(task, "ready", None)
    return is_done is None or is_done()


class _Wrapping:
    """The wrapped methods, as long as any mode is entered in any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._replaced = ExitStack()
        self._starts_workers = threading.local()

    def start(self) -> None:
        with self._lock:
            self._users += 1
            if self._users > 1:
                return
            self._replace(threading.Thread, "start", self._thread_start)
            for owner, names in TASKS:
                for name in names:
                    self._replace(owner, name, self._task)
            for owner, name in STARTS_WORKERS:
                self._replace(owner, name, self._worker_start)
            for name in WAYS_OUT:
                self._replace(torch.Tensor, name, self._way_out)

    def stop(self) -> None:
        with self._lock:
            self._users -= 1
            if not self._users:
                self._replaced.close()

    def _replace(
        self, owner: type, name: str, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]
    ) -> None:
        method = getattr(owner, name)
        wrapped = functools.wraps(method)(wrap(method))
        self._replaced.enter_context(mock.patch.object(owner, name, wrapped))

    def _thread_start(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def start(thread: threading.Thread) -> None:
            mode = None if getattr(self._starts_workers, "now", False) else mode_of_this_thread()
            if mode is not None:
                carried = mode.carried(thread.run)

                def run() -> None:
                    # The mode keeps the error and tells; a traceback on the terminal would be a second time.
                    with suppress(Exception):
                        carried()

                setattr(thread, "run", run)  # noqa: B010 - a method of this one thread
                mode._started.append(thread)
            method(thread)

        return start

    def _task(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def give(pool: Any, function: Any, *args: Any, **kwargs: Any) -> Any:
            mode = mode_of_this_thread()
            if mode is None:
                return method(pool, function, *args, **kwargs)
            task = method(pool, mode.carried(function), *args, **kwargs)
            if hasattr(task, "done") or hasattr(task, "ready"):
                mode._tasks.append(weakref.ref(task))
            return task

        return give

    def _worker_start(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def start(*args: Any, **kwargs: Any) -> Any:
            before = getattr(self._starts_workers, "now", False)
            self._starts_workers.now = True
            try:
                return method(*args, **kwargs)
            finally:
                self._starts_workers.now = before

        return start

    def _way_out(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def leave(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            if (mode := mode_of_this_thread()) is not None:
                mode.left_pytorch(method.__name__, tensor)
            return method(tensor, *args, **kwargs)

        return leave


_wrapping = _Wrapping()

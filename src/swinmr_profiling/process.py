"""How a module of ours becomes a Python process of its own."""

import sys


def python_command(module: str, *arguments: str) -> list[str]:
    """The command line of a new interpreter that runs `main` of a module; what it returns is the exit status.

    The process looks for modules where this one does, in the same order: it measures what this one would. `-m` would
    put the working directory first, with whatever packages lie there.
    """
    folders = [str(entry) for entry in sys.path]
    start = f"import sys; sys.path[:] = {folders!r}; from {module} import main; sys.exit(main())"
    return [sys.executable, "-c", start, *arguments]

"""What the commands' exit statuses mean."""

EXIT_DONE = 0
EXIT_UNEXPECTED = 1  # Python's own, with the traceback
EXIT_BAD_INPUT = 2  # arguments or config
EXIT_NOTHING_FITS = 3  # no requested size, or no budget, could be met
EXIT_PARTIAL = 4  # interrupted, or a size failed for another reason than memory
EXIT_GATE_FAILED = 5  # a condition the user set was not met

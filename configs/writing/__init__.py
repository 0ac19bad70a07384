"""Writing: files whole or not at all, one run to a file, text that a terminal or a stream can take."""

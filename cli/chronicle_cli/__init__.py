"""The command line: one file per command; options → settings → one library call → exit code."""

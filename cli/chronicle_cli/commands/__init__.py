"""The commands, one file each: options → settings → one library call → exit code."""

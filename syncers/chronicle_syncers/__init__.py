"""Ready-made syncers, one per file, each called `sync` and loaded by name."""

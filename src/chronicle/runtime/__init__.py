"""What moves: the runner, the workers, signals, and the loading of a syncer."""

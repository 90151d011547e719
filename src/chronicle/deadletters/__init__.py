"""Working with dead letters: reading them, bringing them back, writing them to files."""

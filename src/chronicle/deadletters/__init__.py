"""Dead letters at work: reading them, bringing them back, writing them to files."""

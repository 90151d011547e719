"""Dead letters as values: why a message died, which ones are meant, where they go. Pure."""

"""Dead letters as values: why a message died, which ones are selected, where they go. Pure."""

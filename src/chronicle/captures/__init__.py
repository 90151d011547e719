"""Copies of messages in files: writing them, reading them back."""

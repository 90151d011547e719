"""What is reported: events, counters, and the masking that keeps secrets and personal data out."""

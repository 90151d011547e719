"""What is told to the outside: event names, counters, and the masks that keep secrets and people out."""

"""The embedded queue: messages in one SQLite file, shared by as many processes as like."""

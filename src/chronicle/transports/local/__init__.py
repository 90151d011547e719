"""The embedded queue: messages in one SQLite file, shared by any number of processes."""

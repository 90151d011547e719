"""Where syncers are found and run: threads, tasks, and what goes between them and the pump."""

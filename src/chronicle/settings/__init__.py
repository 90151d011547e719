"""The options of a run, checked: what the command line and programs share."""

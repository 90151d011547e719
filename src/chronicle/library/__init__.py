"""What programs call: `run` and `arun`, `subscribe`."""

"""Redis: streams, in a consumer group or without one, and pub/sub channels."""

"""The private brokers, the proxy and the helpers that tests share."""

"""The pure part: values and decisions. Nothing here knows a broker, a clock or a thread."""

"""AMQP 0-9-1 on the wire: frames, and the envelopes inside them, decoded and encoded."""

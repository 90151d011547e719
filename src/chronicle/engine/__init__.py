"""The engine: one pump that takes deliveries from a transport, has them handled and settles them."""

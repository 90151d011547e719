"""`chronicle dlq`: see what died and why, and bring it back."""

"""Keys as small numbers (slots)."""

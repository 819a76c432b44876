"""Users' functions: called, checked, compiled."""

"""Who runs next, and on which thread."""

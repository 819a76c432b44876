"""What a Python worker does in a task."""

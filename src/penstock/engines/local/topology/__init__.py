"""From a plan to connected tasks."""

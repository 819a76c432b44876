"""The engines: reference (the judge), and those that later lower a plan to batches and stages."""

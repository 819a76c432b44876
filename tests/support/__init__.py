"""What tests share: builders, drivers and comparisons; no tests."""

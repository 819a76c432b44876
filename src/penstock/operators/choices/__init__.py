"""Choices for a window step that are known before it runs: rules that plans explain and stages follow."""

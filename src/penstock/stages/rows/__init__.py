"""Batches of rows, their order, and rows that are kept."""

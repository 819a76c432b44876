"""Schedulers: who runs next. Five from C-Stream (3.2.6), two presets, and `register` for your own.

`protocol.py` says what a scheduler is, `registry.py` finds one by name; one scheduler per file.
"""

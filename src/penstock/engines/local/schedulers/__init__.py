"""Schedulers: which task runs next. `policies.py` has C-Stream's five, `registry.py` finds one by name."""

"""The `penstock` command: one file per command, and what they share.

`main.py` puts the commands together; `exits.py` says what the exit codes mean; `screen.py` is the
only place that knows about terminals and colours; `load.py` runs a user's file and finds its graph.
Environment variables are read here and nowhere else in the package.
"""

"""The `penstock` command.

`main.py` puts the commands together; `programs.py` runs a user's file and finds its graph; `screen.py` is the
only place that knows about terminals, colours and exit codes. Environment variables are read here and nowhere
else in the package.
"""

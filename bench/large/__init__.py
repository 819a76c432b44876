"""Large inputs on Spark with a small driver: a hundred million rows, and what the driver needs for them.

`inputs.py` writes the files and knows the right totals, `programs.py` has the graphs and checks their output,
`child.py` runs one in a process of its own and watches its memory, `command.py` is `python -m bench large`.
"""

"""Time, as pure functions on integers: durations, time columns, windows, watermarks.

Everything inside Penstock is in microseconds since 1970, as Python or NumPy integers. What engines must
agree on is written here once and quoted by all of them.
"""

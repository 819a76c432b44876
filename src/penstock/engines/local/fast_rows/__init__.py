"""The row-at-a-time path: rounds of one plain row each, with no batch built for them.

A batch, an end of round and a set of accounts per row would cost ten times what the user's functions do. Here
a row is a dict that one function after the other turns into the next (`python -m bench runtime`, groups rows
and latency). Whether a source takes this path is decided once, when the run is built (`source.py`); a round
that is no single plain row, or that a checkpoint saves, goes through the chain as a batch.

    source.py       a source that reads rows, and runs the pipeline behind it
    pipeline.py     the steps of one task that take rows, and where rows go from there
    direct_call.py  from one task to the next: by a direct call, or through the channel
    input.py        a task that takes rows from its only channel, or from a direct call
    context.py      what is known of the row at hand besides its values
"""

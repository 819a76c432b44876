"""What readers and writers of your own are made of: see docs/connectors.md.

A reader gives `SourceBatch`es, each with the position behind it; a writer opens an `Output`, which takes the
rows of numbered batches and makes each batch visible once.
"""

from penstock.connect.protocol import (
    BadRow,
    Delivery,
    DurableOutput,
    Output,
    Reader,
    SourceBatch,
    Writer,
)

__all__ = ["BadRow", "Delivery", "DurableOutput", "Output", "Reader", "SourceBatch", "Writer"]

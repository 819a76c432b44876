"""Readers and writers: the only rooms that touch files, sockets and the user's own data structures."""

from typing import TYPE_CHECKING

from penstock.lazy import defer

if TYPE_CHECKING:
    from penstock.connect.protocol import BadRow as BadRow
    from penstock.connect.protocol import Delivery as Delivery
    from penstock.connect.protocol import Output as Output
    from penstock.connect.protocol import Reader as Reader
    from penstock.connect.protocol import SourceBatch as SourceBatch
    from penstock.connect.protocol import Writer as Writer
    from penstock.connect.readers.generator import Watermark as Watermark
else:
    defer(
        __name__,
        {
            "penstock.connect.protocol": "BadRow Delivery Output Reader SourceBatch Writer",
            "penstock.connect.readers.generator": "Watermark",
        },
    )

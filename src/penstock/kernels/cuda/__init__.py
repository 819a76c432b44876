"""The pane stage and the window stage as CUDA kernels (SPRINGALD, sections IV and V).

`device.py` can be imported anywhere; the other files import numba-cuda and are only for a process that
has a device, or the CUDA simulator. From the rows to the results:

    groups.py      rows into batches of few keys             (VI-C)
    lanes.py       batches into device memory, two at a time (III-B)
    sorting.py     rows by (slot, slice)                     (V-A)
    panes.py       lift, reduce by key, add to the ring      (V-A, Fig. 7)
    ring.py        the pending slices of all slots           (IV-A)
    parked.py      slices that are too far ahead for the ring
    tree.py        the B-PAT's kernels                       (V-B, Figs. 9 to 11)
    forest.py      the B-PATs of all slots
    pane_stage.py  batches into the ring                     (IV-A)
    ready.py       which windows are next
    closing.py     results back to the host
    windows.py     CudaWindows: rows in, windows out
    launch.py      how many threads
    registers.py   what is kept of rows: lifts, and the rules as device functions

Slices are those of timing/slices.py, and cells those of kernels/windows/accumulate.py, so that what a device
holds can be saved and taken up by a process that has none.
"""

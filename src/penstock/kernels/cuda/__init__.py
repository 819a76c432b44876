"""The pane stage and the window stage as CUDA kernels (SPRINGALD, sections IV and V).

`device.py` can be imported anywhere; the other files import numba-cuda and are only for a process that
has a device, or the CUDA simulator. From the rows to the results:

    groups.py      rows into batches of few keys             (VI-C)
    lanes.py       batches into device memory, two at a time (III-B)
    sorting.py     rows by (slot, slice)                     (V-A)
    panes.py       lift, reduce by key, add to the ring      (V-A, Fig. 7)
    ring.py        the pending slices of all slots           (IV-A)
    tree.py        the B-PAT's kernels                       (V-B, Figs. 9 to 11)
    forest.py      the B-PATs of all slots
    pane_stage.py  batches into the ring                     (IV-A)
    closing.py     results back to the host
    windows.py     CudaWindows: rows in, windows out
    slicing.py     which slice a time is in; which slices make a window
    launch.py      how many threads
    operation.py   what is aggregated; registers.py makes it device functions
"""

"""The pane stage and the window stage as CUDA kernels (SPRINGALD, sections IV and V).

`groups.py` can be imported anywhere; the other files import numba-cuda and are only for a process that
has a device, or the CUDA simulator. From the rows to the results:

    key_groups.py    rows into batches of few keys                         (VI-C)
    pane_stage.py    batches into device memory, two at a time, and into the ring (III-B, IV-A)
    panes.py         its kernels: sort by (slot, slice), lift, reduce by key      (V-A, Fig. 7)
    ring.py          the pending slices of all slots                       (IV-A)
    tree.py          the B-PATs of all slots, and their kernels            (V-B, Figs. 9 to 11)
    ready.py         which windows are next, and results back to the host
    windows.py       CudaWindows: rows in, windows out; the seam to `stages/window`
    accumulators.py  what is kept of rows: lifts, and the rules as device functions

Slices are those of timing/slices.py, and cells those of kernels/windows/accumulate.py, so that what a device
holds can be saved and taken up by a process that has none.
"""

"""The pane stage and the window stage as CUDA kernels (SPRINGALD, sections IV and V).

`device.py` can be imported anywhere; the other files import numba-cuda and are only for a process that has a
device, or the CUDA simulator. From the rows to the results:

    pane_stage.py  rows into batches of few keys (VI-C), batches into device memory, two at a time, and into
                   the ring (III-B, IV-A)
    slices.py      the ring of pending slices of all slots (IV-A), and the B-PATs over them (V-B)
    windows.py     CudaWindows: rows in, windows out; the seam to `stages/window`
    kernels.py     what runs on the device: sort by (slot, slice), lift, reduce by key (V-A, Fig. 7), update
                   and query trees (V-B, Figs. 9 to 11)

Slices are those of timing/slices.py, and cells those of kernels/windows/accumulate.py, so that what a device
holds can be saved and taken up by a process that has none.
"""

"""Operators with a driver loop of their own, round by round (`engines/own_loop.py` has the loop itself).

In every round the rows go to the port queues, in order; rows on control ports go to `on_control` first;
then the co-routine runs until it waits for rows that are not there. When the inputs are over it is run
to its end; one that waits on after everything is over is closed. One replica runs, whatever the degree.
"""

from __future__ import annotations

from penstock.engines.own_loop import OwnLoop
from penstock.engines.reference.node import OVER, Arrived, Mark, Node, Outputs, Site
from penstock.engines.timed import in_order
from penstock.operators.process import Process


class ProcessNode(Node):
    """One operator, one co-routine."""

    def __init__(self, site: Site, op: Process) -> None:
        super().__init__(site)
        self._control = [given.port for given in site.step.inputs if given.control]
        self._loop = OwnLoop(site.step, op, site.accounts)

    def round(self, arrived: Arrived) -> Outputs:
        """Deliver the rows, run the operator, and give what it pushed."""
        for control in self._control:
            self._loop.steer(control, in_order(arrived.rows[control]))
        for name, port in self._loop.ports.items():
            self._loop.deliver(name, in_order(arrived.rows[name]))
            port.closed = name in arrived.over
        self._loop.resume()
        if all(port.closed for port in self._loop.ports.values()):
            self._loop.close()
        return self._loop.take_pushed()

    def forward(self, mark: Mark) -> Mark:
        """As far as the oldest row that waits; no limit once the operator has ended."""
        if self._loop.ended:
            return OVER
        return Mark(self._loop.forwarded(mark.watermark), mark.idle)

    def close(self) -> None:
        """Close the co-routine if it still waits."""
        self._loop.close()

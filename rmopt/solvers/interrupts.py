"""Ctrl-C and SIGTERM, put off until the state of a run is whole and saved."""

import signal
import threading
from types import FrameType
from typing import Any, Self


class Interrupts:
    """A context in which the first Ctrl-C or SIGTERM only leaves a note; a second one acts at once.

    Handlers are set in the main thread alone, and are as before at the end. Signals that are ignored stay ignored.

    Parameters
    ----------
    wanted : bool
        Whether to do anything at all.

    Attributes
    ----------
    pending : int or None
        The signal that came.
    """

    def __init__(self, wanted: bool) -> None:
        self.pending: int | None = None
        self._wanted, self._before = wanted, dict[int, Any]()

    def __enter__(self) -> Self:
        main = threading.current_thread() is threading.main_thread()
        for number in (signal.SIGINT, signal.SIGTERM) if self._wanted and main else ():
            before = signal.getsignal(number)
            if before not in (signal.SIG_IGN, None):
                self._before[number] = before
                signal.signal(number, self._note)
        return self

    def __exit__(self, *problem: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)
        if problem[0] is None:
            self.deliver()

    def deliver(self) -> None:
        """Do what the signal does otherwise: KeyboardInterrupt, or for SIGTERM the exit status 143."""
        number, self.pending = self.pending, None
        if number is not None:
            if not callable(self._before[number]):
                raise SystemExit(128 + number)
            self._before[number](number, None)

    def _note(self, number: int, frame: FrameType | None) -> None:
        again, self.pending = self.pending is not None, number
        if again:
            self.deliver()

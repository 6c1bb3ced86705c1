"""Waiting until a group stalls, instead of asking it ten times a second: PSI triggers.

A trigger belongs to the open file it was written through and is gone when that is closed: it is a subscription, not a
value of the group, so there is nothing to journal or to put back.
"""

import contextlib
import os
import pathlib
import select

STALL_USEC, WINDOW_USEC = 30_000, 500_000
"""Half a second is the shortest window before Linux 6.4. The kernel looks ten times a window."""


class Triggers:
    """One trigger a group, all waited for at once; groups may be added and left while another thread waits."""

    def __init__(self, stall_usec: int = STALL_USEC, window_usec: int = WINDOW_USEC) -> None:
        self._trigger = f"some {stall_usec} {window_usec}\0".encode()
        self._epoll = select.epoll()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._wake, select.EPOLLIN)
        self._files: dict[pathlib.Path, int] = {}

    def __len__(self) -> int:
        return len(self._files)

    def watch(self, pressure: pathlib.Path) -> bool:
        """Subscribe to a group's ``cpu.pressure``; return False where the kernel does not take it.

        It wants CAP_SYS_RESOURCE for a window that is no multiple of two seconds, and a kernel built with PSI.
        """
        if pressure in self._files:
            return True
        try:
            descriptor = os.open(pressure, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            os.write(descriptor, self._trigger)
            self._epoll.register(descriptor, select.EPOLLPRI)
        except OSError:
            os.close(descriptor)
            return False
        self._files[pressure] = descriptor
        return True

    def forget(self, pressure: pathlib.Path) -> None:
        """End a subscription, if there is one."""
        descriptor = self._files.pop(pressure, None)
        if descriptor is not None:
            with contextlib.suppress(OSError):  # the kernel may have taken it out itself
                self._epoll.unregister(descriptor)
            os.close(descriptor)

    def wait(self, seconds: float) -> bool:
        """Wait; return whether a group stalled. Groups that were removed are forgotten."""
        stalled = False
        for descriptor, event in self._epoll.poll(seconds):
            if descriptor == self._wake:
                with contextlib.suppress(BlockingIOError):  # another wake may have been read with this one
                    os.read(self._wake, 8)
            elif event & select.EPOLLERR:
                for pressure in [known for known, opened in self._files.items() if opened == descriptor]:
                    self.forget(pressure)
            else:
                stalled = True
        return stalled

    def wake(self) -> None:
        """End a wait early."""
        os.write(self._wake, (1).to_bytes(8, "little"))

    def close(self) -> None:
        """End all subscriptions."""
        for pressure in list(self._files):
            self.forget(pressure)
        self._epoll.close()
        os.close(self._wake)

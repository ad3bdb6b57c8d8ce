#!/usr/bin/env python3
"""A bad line between two network namespaces, for kernels without netem.

    bad_line.py A B --delay-ms 1 --loss 0.01 --seed 7

Gives each namespace a TUN device named as the namespace is, and carries the IP
packets between the two: each arrives so much later, some never. The order stays.
Says "ready" once both devices are there; ends at SIGTERM, whereupon it says how
many packets were carried and dropped, and the devices vanish. Needs root and
/dev/net/tun (exit code 77 without).
"""
import argparse
import collections
import ctypes
import errno
import fcntl
import os
import random
import select
import signal
import struct
import sys
import time

# linux/sched.h, linux/if_tun.h
CLONE_NEWNET = 0x40000000
TUNSETIFF = 0x400454CA
IFF_TUN = 0x0001
IFF_NO_PI = 0x1000
PACKET = 1 << 16  # bytes, more than any MTU
WAITING = 10_000  # packets on the line in one direction; more are dropped


def open_tun(namespace):
    """A new TUN device of that namespace, which this process enters."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/run/netns/{namespace}", "rb") as entered:
        if libc.setns(entered.fileno(), CLONE_NEWNET) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), namespace)
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, TUNSETIFF,
                struct.pack("16sH22x", namespace.encode(), IFF_TUN | IFF_NO_PI))
    return device


class Direction:
    """Packets from one device to the other; times are time.monotonic()'s."""

    def __init__(self, source, target, delay, loss, seed):
        self.source = source
        self.carried = 0
        self.dropped = 0
        self._target = target
        self._delay = delay
        self._loss = loss
        self._random = random.Random(seed)
        self._line = collections.deque()  # (when it arrives, packet)

    def take(self):
        """What the source has sent."""
        while True:
            try:
                packet = os.read(self.source, PACKET)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno == errno.EIO:  # the device is down
                    return
                raise
            if (self._random.random() < self._loss
                    or len(self._line) >= WAITING):
                self.dropped += 1
            else:
                self._line.append((time.monotonic() + self._delay, packet))

    def deliver(self):
        """What has arrived; seconds until more does, or None."""
        while self._line:
            wait = self._line[0][0] - time.monotonic()
            if wait > 0:
                return wait
            packet = self._line.popleft()[1]
            try:
                os.write(self._target, packet)
                self.carried += 1
            except OSError as error:
                if error.errno not in (errno.EIO, errno.EAGAIN, errno.EINVAL):
                    raise
                self.dropped += 1
        return None


def carry(directions, stopped):
    poll = select.epoll()
    for direction in directions:
        poll.register(direction.source, select.EPOLLIN)
    while not stopped:
        waits = [wait for direction in directions
                 if (wait := direction.deliver()) is not None]
        # epoll counts in whole milliseconds; select counts in microseconds.
        select.select([poll], [], [], min(waits, default=0.1))
        for direction in directions:
            direction.take()


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].strip())
    parser.add_argument("namespaces", nargs=2)
    parser.add_argument("--delay-ms", type=float, default=1)
    parser.add_argument("--loss", type=float, default=0.01)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    try:
        a, b = map(open_tun, args.namespaces)
    except OSError as error:
        print(f"bad_line: {error}", file=sys.stderr)
        return 77
    stopped = []
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
    directions = [
        Direction(a, b, args.delay_ms / 1000, args.loss, args.seed),
        Direction(b, a, args.delay_ms / 1000, args.loss, args.seed + 1)]
    print("ready", flush=True)
    carry(directions, stopped)
    print(sum(d.carried for d in directions), sum(d.dropped for d in directions),
          flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

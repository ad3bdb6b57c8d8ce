"""A program at the other end of a pseudo-terminal, as a person sits before it."""
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time


class Terminal:
    """`seen` is all that the program wrote, escape sequences included."""

    def __init__(self, *args, columns=80, env=None):
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ,
                    struct.pack("HHHH", 40, columns, 0, 0))
        self._master = master
        self.seen = ""
        settings = {"TERM": "xterm-256color", "HOME": "/nonexistent"}
        self.process = subprocess.Popen(
            [str(arg) for arg in args], stdin=slave, stdout=slave, stderr=slave,
            env={**clean_environment(), **settings, **(env or {})},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(slave)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)
        os.close(self._master)

    def type(self, keys):
        """Ctrl-C and Ctrl-D are keys once the program reads key by key; a line
        editor shows its prompt a moment before."""
        if keys in ("\x03", "\x04"):
            end = time.monotonic() + 1
            while time.monotonic() < end and self._reads_lines():
                time.sleep(0.01)
        os.write(self._master, keys.encode())

    def _reads_lines(self):
        return bool(termios.tcgetattr(self._master)[3] & termios.ICANON)

    def _read(self, seconds):
        ready, _, _ = select.select([self._master], [], [], seconds)
        if not ready:
            return True
        try:
            piece = os.read(self._master, 65536)
        except OSError:  # the program has ended
            return False
        self.seen += piece.decode("utf-8", "replace")
        return bool(piece)

    def until(self, pattern, timeout=60):
        """Waits for a match behind what was matched last; returns the text."""
        begin = getattr(self, "_at", 0)
        end = time.monotonic() + timeout
        while True:
            match = re.compile(pattern, re.S).search(self.seen, begin)
            if match:
                self._at = match.end()
                return self.seen[begin:match.end()]
            if time.monotonic() > end or not self._read(0.2) and not re.compile(
                    pattern, re.S).search(self.seen, begin):
                raise AssertionError(
                    f"{pattern!r} did not come; seen: {self.seen[begin:]!r}")

    def end(self, timeout=20):
        """The exit status, once the program has ended by itself."""
        end = time.monotonic() + timeout
        while self._read(0.2) and time.monotonic() < end:
            if self.process.poll() is not None:
                break
        while select.select([self._master], [], [], 0)[0] and self._read(0):
            pass
        return self.process.wait(timeout)


def clean_environment():
    """Without what a developer's shell sets for the program or its colours."""
    return {name: value for name, value in os.environ.items()
            if not name.startswith("MILLRACE_") and name != "NO_COLOR"}


def plain(text):
    """Without escape sequences and carriage returns."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]", "", text).replace("\r", "")

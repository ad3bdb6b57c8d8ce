"""gRPC calls whose message never ends, in the frames of HTTP/2 (RFC 9113): no
client library sends such."""
import select
import socket
import struct

DATA, HEADERS, RESET, SETTINGS, PING, GOAWAY, WINDOW = 0, 1, 3, 4, 6, 7, 8
END_HEADERS, ACK = 4, 1
FRAME = 16384  # the longest that needs no agreement


class HalfCalls:
    """One connection with `num_calls` unary calls, each of which sends `size`
    bytes of a message that says it is one byte longer."""

    def __init__(self, port, method, num_calls, size):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setblocking(False)
        self.out = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        self.into = b""
        self.window = self.first_window = 65535
        self.windows, self.left = {}, {}
        self.ended = False  # by the server
        self.frame(SETTINGS, 0, 0, b"")
        fields = {":method": "POST", ":scheme": "http", ":path": method,
                  ":authority": "x", "content-type": "application/grpc",
                  "te": "trailers"}
        block = b"".join(
            b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) +
            value.encode() for name, value in fields.items())
        for call in range(1, 2 * num_calls, 2):
            self.frame(HEADERS, END_HEADERS, call, block)
            self.windows[call] = self.first_window
            self.left[call] = b"\0" + struct.pack(">I", size + 1) + bytes(size)

    def frame(self, kind, flags, stream, payload):
        self.out += (struct.pack(">I", len(payload))[1:] +
                     bytes([kind, flags]) + struct.pack(">I", stream) + payload)

    def take(self, kind, flags, stream, payload):
        if kind == SETTINGS and not flags & ACK:
            for at in range(0, len(payload), 6):
                name, value = struct.unpack_from(">HI", payload, at)
                if name == 4:  # SETTINGS_INITIAL_WINDOW_SIZE
                    for call in self.windows:
                        self.windows[call] += value - self.first_window
                    self.first_window = value
            self.frame(SETTINGS, ACK, 0, b"")
        elif kind == PING and not flags & ACK:
            self.frame(PING, ACK, 0, payload)
        elif kind == WINDOW:
            more = struct.unpack(">I", payload)[0]
            if stream == 0:
                self.window += more
            elif stream in self.windows:
                self.windows[stream] += more
        elif kind in (RESET, HEADERS):  # refused
            self.windows.pop(stream, None)
            self.left.pop(stream, None)
        elif kind == GOAWAY:
            self.ended = True

    def step(self):
        """Sends and takes what can be without waiting long; whether anything
        could."""
        for call in list(self.left):
            room = min(self.window, self.windows[call], FRAME,
                       len(self.left[call]))
            if room > 0 and len(self.out) < 1 << 20:
                self.frame(DATA, 0, call, self.left[call][:room])
                self.left[call] = self.left[call][room:]
                self.window -= room
                self.windows[call] -= room
        can_read, can_write, _ = select.select(
            [self.socket], [self.socket] if self.out else [], [], 0.2)
        try:
            if can_write:
                self.out = self.out[self.socket.send(self.out[:1 << 16]):]
            if can_read:
                more = self.socket.recv(1 << 16)
                self.ended = self.ended or not more
                self.into += more
        except OSError:
            self.ended = True
        while len(self.into) >= 9:
            size = int.from_bytes(self.into[:3], "big")
            if len(self.into) < 9 + size:
                break
            self.take(self.into[3], self.into[4],
                      struct.unpack_from(">I", self.into, 5)[0] & 0x7fffffff,
                      self.into[9:9 + size])
            self.into = self.into[9 + size:]
        return bool(can_write or can_read) and not self.ended

    def close(self):
        self.socket.close()

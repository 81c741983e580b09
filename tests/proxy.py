"""A TCP proxy for tests: it can cut its connections, stall them, both ways or one, slow them down, or change a byte."""

import socket
import threading
import time

PIECE = 16 << 10
WAYS = ("up", "down")
# A change of a byte comes at least so far behind the start of a connection: the handshake is over there.
AFTER_HANDSHAKE = 8 << 10


class Proxy:
    """Takes connections at one address, and passes them on to another."""

    def __init__(self, listens, target):
        self.target = target
        self.lock = threading.Lock()
        self.pairs = set()
        # Whether anything gets through, `up` to the server and `down`.
        self.goes_on = {way: threading.Event() for way in WAYS}
        self.go_on()
        # Bytes per second of everything together, and when the next piece may pass.
        self.rate = None
        self.next_at = 0.0
        # Which way a byte is changed that comes next, `up` to the server or `down`, and how many were.
        self.corrupts = None
        self.corrupted = 0
        self.passed_bytes = 0
        self.listener = socket.create_server(listens)
        threading.Thread(target=self.accept, daemon=True).start()

    def close(self):
        # A thread that waits in accept is not woken by a close.
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.go_on()
        self.cut()

    def accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(self.target, timeout=10)
            except OSError:
                near.close()
                continue
            far.settimeout(None)
            for end in (near, far):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            pair = (near, far)
            with self.lock:
                self.pairs.add(pair)
            for source, sink, way in ((near, far, "up"), (far, near, "down")):
                threading.Thread(target=self.pump, args=(pair, source, sink, way), daemon=True).start()

    def pump(self, pair, source, sink, way):
        here = 0
        try:
            while piece := source.recv(PIECE):
                self.goes_on[way].wait()
                self.pace(len(piece))
                piece = self.changed(piece, here, way)
                here += len(piece)
                sink.sendall(piece)
        except OSError:
            pass
        self.end(pair)

    def pace(self, len_bytes):
        with self.lock:
            self.passed_bytes += len_bytes
            if self.rate is None:
                return
            now = time.monotonic()
            self.next_at = max(self.next_at, now) + len_bytes / self.rate
            pause = self.next_at - now
        time.sleep(pause)

    def changed(self, piece, here, way):
        with self.lock:
            if self.corrupts != way or here < AFTER_HANDSHAKE:
                return piece
            self.corrupts = None
            self.corrupted += 1
        at = len(piece) // 2
        return piece[:at] + bytes([piece[at] ^ 1]) + piece[at + 1 :]

    def end(self, pair):
        with self.lock:
            self.pairs.discard(pair)
        for end in pair:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            end.close()

    def stall(self, *ways):
        """Nothing gets through any more: one way, or none."""
        for way in ways or WAYS:
            self.goes_on[way].clear()

    def go_on(self):
        for event in self.goes_on.values():
            event.set()

    def cut(self):
        """Ends all connections; gives how many there were."""
        with self.lock:
            pairs = list(self.pairs)
        for pair in pairs:
            self.end(pair)
        return len(pairs)

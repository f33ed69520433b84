"""A TCP proxy that fails on demand as a network does, while the kernels on both sides
acknowledge.
"""

import selectors
import socket
import struct
import threading

OK, HOLE, RESET, NO_REQUESTS, NO_ANSWERS = "ok", "hole", "reset", "no requests", "no answers"
REQUEST, ANSWER = "request", "answer"


class Proxy:
    """Connect clients at `port` (0: any free one) to the server at `target`. Another target is that
    of later clients; `accepted` counts them all, `requests` has the pieces that they sent.

    `mode` is the fault of all traffic; RESET also ends open connections. strike() makes one message
    fail, and so only its connection, unless it also changes the mode.
    """

    def __init__(self, target: int, port: int = 0, host: str = "127.0.0.1"):
        self.target = target
        self.accepted = 0
        self.requests = []
        self.mode = OK
        self.pairs = {}  # {socket: the socket of the other side}
        self.clients = set()
        self.ended = set()  # closed by one side; the other side does not know yet
        self.silent = set()  # sockets whose data is no longer forwarded
        self.fault, self.kind, self.left = (
            OK,
            None,
            0,
        )  # of the message to lose; how many messages remain up to it
        self.after = OK
        self.selector = selectors.DefaultSelector()
        self.listener = socket.create_server((host, port), backlog=100)
        self.port = self.listener.getsockname()[1]
        self.wake, self.waker = socket.socketpair()
        self.selector.register(self.listener, selectors.EVENT_READ)
        self.selector.register(self.wake, selectors.EVENT_READ)
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def set(self, mode: str):
        self.mode = mode
        self.waker.send(b"!")

    def strike(self, fault: str, kind: str, number: int, after: str = OK):
        """Lose (HOLE) or RESET the message that is the `number`th of its kind from now on, REQUEST
        or ANSWER.

        Then the mode is `after`.
        """
        self.fault, self.kind, self.left, self.after = fault, kind, number, after

    @property
    def has_struck(self) -> bool:
        return self.left <= 0

    def close(self):
        self.set("over")
        self.thread.join(10)

    def serve(self):
        while self.mode != "over":
            for key, _ in self.selector.select():
                if key.fileobj is self.wake:
                    self.wake.recv(100)
                    for one in list(
                        self.clients
                        if self.mode == RESET
                        else self.ended
                        if self.mode == OK
                        else ()
                    ):
                        self.drop(one)
                elif key.fileobj is self.listener:
                    self.accept()
                elif key.fileobj in self.pairs:
                    self.forward(key.fileobj)
        for one in list(self.pairs):
            one.close()
        self.listener.close()

    def accept(self):
        client, _ = self.listener.accept()
        self.accepted += 1
        if self.mode == RESET:
            self.reset(client)
            return
        try:
            server = socket.create_connection(("127.0.0.1", self.target), timeout=5)
        except OSError:
            self.reset(client)
            return
        self.clients.add(client)
        for one, other in ((client, server), (server, client)):
            one.settimeout(5)
            self.pairs[one] = other
            self.selector.register(one, selectors.EVENT_READ)

    def forward(self, one):
        try:
            data = one.recv(1 << 16)
        except OSError:
            data = b""
        if not data:
            # A hole hides the end of a connection too.
            if self.mode in (OK, RESET):
                self.drop(one)
            else:
                self.ended.add(one)
                self.selector.unregister(one)
            return
        kind = REQUEST if one in self.clients else ANSWER
        if kind == REQUEST:
            self.requests.append(data)
        if kind == self.kind:
            self.left -= 1
            if self.left == 0:
                self.mode = self.after
                if self.fault == RESET:
                    self.drop(one)
                    return
                self.silent.add(one)  # a stream cannot lose a part and go on
        if one in self.silent or self.mode in (
            HOLE,
            NO_REQUESTS if kind == REQUEST else NO_ANSWERS,
        ):
            return
        try:
            self.pairs[one].sendall(data)
        except OSError:
            self.drop(one)

    def drop(self, one):
        """Reset both sides of a connection."""
        for end in (one, self.pairs.get(one)):
            if end in self.pairs:
                del self.pairs[end]
                if end not in self.ended:
                    self.selector.unregister(end)
                self.reset(end)
                for known in (self.clients, self.silent, self.ended):
                    known.discard(end)

    @staticmethod
    def reset(end):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        end.close()

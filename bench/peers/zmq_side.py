"""A side of ZeroMQ, by pyzmq."""

from __future__ import annotations

import time

import zmq

from bench.peers.ping_pong import ping_pong


class Side:
    """One of two processes with a pair of sockets."""

    def __init__(self, number: int, address: str) -> None:
        self.number = number
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.PAIR)
        self.socket.set(zmq.SNDHWM, 0)
        self.socket.set(zmq.RCVHWM, 0)
        if number == 1:
            self.socket.bind(address)
        else:
            self.socket.connect(address)

    def ping_pong(self, size: int, count: int) -> float:
        """Seconds of half a round trip."""
        return ping_pong(self.number, self.socket.send, self.socket.recv, size, count)

    def rate(self, size: int, count: int) -> float:
        """Messages a second."""
        send, receive, message = self.socket.send, self.socket.recv, bytes(size)
        start = time.perf_counter()
        for _ in range(count):
            if self.number == 0:
                send(message)
            else:
                receive()
        if self.number == 0:
            receive()
        else:
            send(b"x")
        return count / (time.perf_counter() - start)

    def close(self) -> None:
        """Ends at once."""
        self.socket.close(0)
        self.context.term()

"""How long do two programs that sleep wait for each other: softhca, beside sockets that block?

    python bench/event_round_trips.py [--round-trips 2000] [--rounds 9]

Two processes, 64 bytes there and back. "network" and "memory" are a SEND each way over UDP and
between adapters of one host; each side arms its queue and sleeps in `channel.get_event()`. "udp" is
a datagram each way between sockets that block. Prints the median round trip of interleaved rounds
in microseconds, and the ratio to the sockets' beside it.
"""

from __future__ import annotations

import argparse
import multiprocessing
import socket
import statistics
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

import softhca as hca

BYTES = 64
RECEIVES = 8


class Side:
    """A queue pair whose owner sleeps until something comes."""

    def __init__(self, link: str) -> None:
        self.device = hca.open(link=link)
        pd = self.device.alloc_pd()
        self.channel = self.device.create_comp_channel()
        self.cq = self.device.create_cq(256, channel=self.channel)
        self.qp = pd.create_qp(hca.QPType.RC, send_cq=self.cq, recv_cq=self.cq, max_send_wr=64)
        self.mr = pd.reg_mr(bytearray(2 * BYTES))
        self.sent = 0

    def connect(self, info: hca.QPInfo) -> None:
        self.qp.connect(info)
        for _ in range(RECEIVES):
            self.qp.post_recv(hca.Recv(self.mr[BYTES:]))

    def send(self) -> None:
        self.sent += 1
        signaled = self.sent % RECEIVES == 0
        self.qp.post_send(hca.Send(self.mr[:BYTES], signaled=signaled))

    def receive(self) -> None:
        while True:
            received = 0
            for wc in self.cq.poll():
                assert wc.status == hca.WcStatus.SUCCESS, wc
                received += wc.opcode == hca.WcOpcode.RECV
            if received:
                self.qp.post_recv(hca.Recv(self.mr[BYTES:]))
                return
            flags = hca.NotifyFlags.NEXT_COMP | hca.NotifyFlags.REPORT_MISSED_EVENTS
            if self.cq.req_notify(flags) == 0:
                self.channel.get_event()
                self.cq.ack_events()


def serve(pipe: Connection) -> None:
    sides = [Side("udp"), Side("auto")]
    plain = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    plain.bind(("127.0.0.1", 0))
    pipe.send(([side.qp.info() for side in sides], plain.getsockname()))
    for side, info in zip(sides, pipe.recv(), strict=True):
        side.connect(info)
    pipe.send("ready")
    while (order := pipe.recv()) is not None:
        which, round_trips = order
        for _ in range(round_trips):
            if which < len(sides):
                sides[which].receive()
                sides[which].send()
            else:
                data, address = plain.recvfrom(BYTES)
                plain.sendto(data, address)


def softhca_round_trip(side: Side) -> Callable[[], None]:
    def go() -> None:
        side.send()
        side.receive()

    return go


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--round-trips", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    spawn = multiprocessing.get_context("spawn")
    pipe, remote = spawn.Pipe()
    server = spawn.Process(target=serve, args=(remote,), daemon=True)
    server.start()
    sides = [Side("udp"), Side("auto")]
    infos, address = pipe.recv()
    pipe.send([side.qp.info() for side in sides])
    for side, info in zip(sides, infos, strict=True):
        side.connect(info)
    pipe.recv()
    plain = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    data = bytes(BYTES)

    def plain_round_trip() -> None:
        plain.sendto(data, address)
        plain.recv(BYTES)

    ways = [*map(softhca_round_trip, sides), plain_round_trip]
    names = ["network", "memory", "udp"]
    times: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(options.rounds):
        for which, (name, go) in enumerate(zip(names, ways, strict=True)):
            pipe.send((which, options.round_trips))
            began = time.perf_counter()
            for _ in range(options.round_trips):
                go()
            times[name].append((time.perf_counter() - began) / options.round_trips * 1e6)
    pipe.send(None)
    server.join()
    print(f"{'round trip':10} {'us':>8} {'of udp':>8}")
    for name in names:
        ratios = [mine / other for mine, other in zip(times[name], times["udp"], strict=True)]
        print(f"{name:10} {statistics.median(times[name]):8.1f} {statistics.median(ratios):8.2f}")


if __name__ == "__main__":
    main()

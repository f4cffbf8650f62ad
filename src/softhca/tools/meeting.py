"""How the two ends of pingpong and perf find each other: --self, a server, or a client of one."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager

from softhca.tools.command import Command, CommandError, count_of, print_error
from softhca.tools.peer_process import Peer, peer_process
from softhca.tools.side_channel import DEFAULT_PORT, SideChannel


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what says who the other end is and where both are."""
    parser.add_argument("host", nargs="?", metavar="HOST", help="the server; without it, be one")
    parser.add_argument(
        "--self", dest="both", action="store_true", help="run both ends, in two processes"
    )
    parser.add_argument(
        "--port",
        type=count_of(0, 65535),
        default=DEFAULT_PORT,
        help="TCP port of the side channel; 0 takes a free one (default: %(default)s)",
    )
    parser.add_argument(
        "--address",
        help="local address or interface of the adapter (default: the one that leads to the other "
        "end; a free 127.x.y.z within a machine)",
    )
    parser.add_argument("--mtu", type=count_of(256, 4096), help="largest path MTU, in bytes")
    parser.add_argument("--capture", metavar="FILE", help="write a pcapng of all packets")


@contextmanager
def client_channel(args: argparse.Namespace, peer: Peer) -> Iterator[SideChannel]:
    """The client's side channel: to the server at HOST, or to `peer` in a second process."""
    if args.both:
        if args.host is not None:
            raise CommandError("--self runs both ends: it takes no HOST")
        with peer_process(peer) as channel:
            yield channel
    else:
        with SideChannel.connect(args.host, args.port) as channel:
            yield channel


@contextmanager
def server_channel(command: Command, args: argparse.Namespace) -> Iterator[SideChannel]:
    """The server's side channel, once a client has come."""
    listener, port = SideChannel.listen(args.port)
    with listener:
        print_error(f"softhca {command.name}: waiting for a client on TCP port {port}")
        connection, _ = listener.accept()
    with SideChannel(connection) as channel:
        yield channel

"""`softhca pingpong [HOST]`: messages to and fro, after ibv_rc_pingpong and its siblings."""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict, dataclass
from typing import Any

from softhca import QP
from softhca.tools import meeting
from softhca.tools.command import Command, CommandError, count_of, demand_whole, print_json
from softhca.tools.endpoint import ATOMIC_BYTES, Endpoint, Service
from softhca.tools.exchange import EXCHANGES, OPERATIONS
from softhca.tools.side_channel import SideChannel

DESCRIPTION = """Without HOST, waits for a client and does what it asks for. With HOST, goes there
and plays: SEND and WRITE are answered in kind, READ and atomics by the server's adapter alone.
The side channel is a TCP port, as in ibv_rc_pingpong. Exit status: 0 if every round came back
(and, with --check, every byte was right)."""

_MAX_BYTES = 1 << 30
_MAX_ROUNDS = 1 << 30


@dataclass(frozen=True)
class Game:
    """What the client asks for.

    Raises:
        CommandError: the parts do not go together.
    """

    qp: str
    op: str
    size: int
    iters: int
    check: bool
    mtu: int | None

    def __post_init__(self) -> None:
        offered = OPERATIONS[Service(self.qp)]
        if self.op not in offered:
            raise CommandError(f"{self.qp} offers {', '.join(offered)}, not {self.op}")
        demand_whole(size=self.size, iters=self.iters)
        if self.mtu is not None:
            demand_whole(mtu=self.mtu)
        smallest = 1 if self.op == "write" else 0  # Its last byte is what the other end watches.
        if not smallest <= self.size <= _MAX_BYTES or not 1 <= self.iters <= _MAX_ROUNDS:
            raise CommandError(f"{self.size} bytes, {self.iters} times is out of range")
        if self.op == "atomic" and self.size != ATOMIC_BYTES:
            raise CommandError(f"atomics have {ATOMIC_BYTES} bytes")

    @classmethod
    def from_message(cls, message: dict[str, Any]) -> Game:
        """Reads what came over the side channel."""
        try:
            return cls(**message)
        except (TypeError, ValueError) as error:
            raise CommandError(f"the other end asks for what cannot be played: {error}") from None


def play(
    channel: SideChannel, game: Game, address: str | None, capture: str | None
) -> dict[str, Any]:
    """The client's end; returns what it measured."""
    channel.send(**asdict(game))
    with _endpoint(channel, game, address, capture) as endpoint:
        exchange = EXCHANGES[game.op](endpoint, channel, game.size, game.iters, game.check)
        exchange.prepare()
        channel.barrier()
        started_ns = time.perf_counter_ns()
        for number in range(game.iters):
            exchange.play(number)
        seconds = (time.perf_counter_ns() - started_ns) / 1e9
        channel.send(finished=True)
        channel.receive("satisfied")
        moved = game.size * game.iters * exchange.messages_per_round
        return asdict(game) | {
            "local": _side(endpoint, endpoint.initiator),
            "remote": {
                "gid": str(endpoint.peer.gid),
                "qpn": endpoint.peer.qpn,
                "psn": endpoint.peer.psn,
            },
            "path_mtu": endpoint.path_mtu_bytes,
            "bytes": moved,
            "seconds": seconds,
            "usec_per_iter": seconds * 1e6 / game.iters,
            "mbit_per_sec": moved * 8 / seconds / 1e6,
            "checked_bytes": moved if game.check else 0,
        }


def serve(channel: SideChannel, address: str | None = None, capture: str | None = None) -> None:
    """The server's end of whatever game the client asks for."""
    game = Game.from_message(channel.receive("qp", "op"))
    with _endpoint(channel, game, address, capture) as endpoint:
        exchange = EXCHANGES[game.op](endpoint, channel, game.size, game.iters, game.check)
        exchange.prepare()
        channel.barrier()
        exchange.serve()
        channel.send(satisfied=True)


def _endpoint(
    channel: SideChannel, game: Game, address: str | None, capture: str | None
) -> Endpoint:
    endpoint = Endpoint(
        channel,
        Service(game.qp),
        memory_bytes=game.size,
        address=address or channel.local_address,
        capture=capture,
        mtu=game.mtu,
    )
    try:
        endpoint.connect()
        if endpoint.service is Service.UD and game.size > endpoint.path_mtu_bytes:
            raise CommandError(
                f"a datagram holds {endpoint.path_mtu_bytes} bytes here, not {game.size}"
            )
    except BaseException:
        endpoint.close()
        raise
    return endpoint


def _side(endpoint: Endpoint, qp: QP) -> dict[str, Any]:
    return {"gid": str(endpoint.device.gid), "qpn": qp.qpn, "psn": qp.psn}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what `pingpong` understands."""
    meeting.add_arguments(parser)
    parser.add_argument("--qp", choices=[service.value for service in Service], default="rc")
    parser.add_argument("--op", choices=list(EXCHANGES), default="send")
    parser.add_argument(
        "--size",
        type=count_of(0, _MAX_BYTES),
        help="bytes of a message; K and M understood (default: 4096; atomics have 8; UD 1024)",
    )
    parser.add_argument("--iters", type=count_of(1, _MAX_ROUNDS), default=1000, help="rounds")
    parser.add_argument("--check", action="store_true", help="verify every byte that arrives")


def run(args: argparse.Namespace) -> int:
    """Plays, or waits for a client and serves it."""
    if args.host is None and not args.both:
        with meeting.server_channel(COMMAND, args) as channel:
            serve(channel, args.address, args.capture)
        if args.json:
            print_json({"served": True})
        return 0
    sizes = {"atomic": ATOMIC_BYTES, "send": 1024 if args.qp == "ud" else 4096}
    size = args.size if args.size is not None else sizes.get(args.op, 4096)
    game = Game(args.qp, args.op, size, args.iters, args.check, args.mtu)
    with meeting.client_channel(args, serve) as channel:
        result = play(channel, game, args.address, args.capture)
    if args.json:
        print_json(result)
    else:
        _print_text(result)
    return 0


def _print_text(result: dict[str, Any]) -> None:
    for name in ("local", "remote"):
        side = result[name]
        print(
            f"  {name + ' address:':<16} GID {side['gid']}, QPN {side['qpn']:#08x}, "
            f"PSN {side['psn']:#08x}"
        )
    print(
        f"{result['bytes']} bytes in {result['seconds']:.2f} seconds = "
        f"{result['mbit_per_sec']:.2f} Mbit/sec"
    )
    print(
        f"{result['iters']} iters in {result['seconds']:.2f} seconds = "
        f"{result['usec_per_iter']:.2f} usec/iter"
    )
    if result["check"]:
        print(f"{result['checked_bytes']} bytes verified")


COMMAND = Command(
    name="pingpong",
    summary="messages to and fro between two hosts",
    description=DESCRIPTION,
    add_arguments=add_arguments,
    run=run,
)

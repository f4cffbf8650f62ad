"""What the two sides do with each other, each check written once for both directions."""

from __future__ import annotations

from collections.abc import Callable

from connection import (
    LANDING,
    REM_ACCESS_ERR,
    SUCCESS,
    Connection,
    NotOfferedError,
    demand,
)
from side import ARENA_BYTES, GRH_BYTES, Side

Check = Callable[[Side, Side, int], None]

WITH_IMM = 0xBADC0DE5
RECV, RECV_RDMA_WITH_IMM = 128, 129
GUARD = 64


def sizes(mtu: int) -> list[int]:
    return [0, 1, 61, mtu, mtu + 1, 3 * mtu + 7]


def send(requester: Side, responder: Side, mtu: int, kind: str = "RC") -> None:
    with Connection(requester, responder, kind, mtu) as link:
        for size in sizes(mtu):
            sent = link.fill(size)
            link.post_recv(size + 10)
            link.post("SEND", size)
            link.sent()
            (wc,) = link.received()
            demand(wc["byte_len"] == size, f"byte_len {size}", wc)
            demand(responder.digest(LANDING, size) == sent, f"the {size} bytes that were sent")
        link.in_good_state()


def send_imm(requester: Side, responder: Side, mtu: int, kind: str = "RC") -> None:
    with Connection(requester, responder, kind, mtu) as link:
        for size in (0, 100, mtu + 1):
            sent = link.fill(size)
            link.post_recv(size)
            link.post("SEND_IMM", size, imm=WITH_IMM)
            link.sent()
            (wc,) = link.received()
            demand(wc["imm"] == WITH_IMM and wc["opcode"] == RECV, "the immediate", wc)
            demand(responder.digest(LANDING, size) == sent, f"the {size} bytes that were sent")
        link.in_good_state()


def write(requester: Side, responder: Side, mtu: int, kind: str = "RC") -> None:
    with Connection(requester, responder, kind, mtu) as link:
        for size in sizes(mtu):
            sent = link.fill(size)
            responder.fill(LANDING, GUARD, 7)
            responder.fill(LANDING + GUARD + size, GUARD, 8)
            guards = [responder.digest(LANDING + at, GUARD) for at in (0, GUARD + size)]
            link.post("WRITE", size, at=LANDING + GUARD)
            if kind == "UC":
                # Nothing tells the responder of a WRITE; the SEND behind it does.
                link.post_recv(0)
                link.post("SEND", 0)
                link.sent(2)
                link.received()
            else:
                link.sent()
            found = responder.digest(LANDING + GUARD, size)
            demand(found == sent, f"the {size} bytes that were written")
            again = [responder.digest(LANDING + at, GUARD) for at in (0, GUARD + size)]
            demand(again == guards, f"the bytes around {size} written ones")
        link.in_good_state()


def write_imm(requester: Side, responder: Side, mtu: int, kind: str = "RC") -> None:
    with Connection(requester, responder, kind, mtu) as link:
        for size in (0, 100, 2 * mtu + 1):
            sent = link.fill(size)
            link.post_recv(0)
            link.post("WRITE_IMM", size, imm=WITH_IMM)
            link.sent()
            (wc,) = link.received()
            demand(wc["imm"] == WITH_IMM, "the immediate", wc)
            demand(wc["opcode"] == RECV_RDMA_WITH_IMM, "opcode RECV_RDMA_WITH_IMM", wc)
            demand(wc["byte_len"] == size, f"byte_len {size}", wc)
            demand(responder.digest(LANDING, size) == sent, f"the {size} bytes that were written")
        link.in_good_state()


def read(requester: Side, responder: Side, mtu: int) -> None:
    with Connection(requester, responder, "RC", mtu) as link:
        for size in sizes(mtu):
            responder.fill(0, size, 1000 + size)
            link.post("READ", size, offset=LANDING, at=0)
            link.sent()
            same = requester.digest(LANDING, size) == responder.digest(0, size)
            demand(same, f"the {size} bytes that were read")
        link.in_good_state()


def bulk(requester: Side, responder: Side, mtu: int) -> None:
    """Many packets a message, several messages under way, WRITE and READ at once."""
    piece, count = 48 * 1024 + 5, 5
    with Connection(requester, responder, "RC", mtu) as link:
        written = []
        responder.fill(0, piece * count, 77)
        for number in range(count):
            written.append(link.fill(piece, number * piece))
            link.post("WRITE", piece, number * piece, LANDING + number * piece)
            link.post("READ", piece, LANDING + number * piece, number * piece)
        wcs = link.sent(2 * count)
        demand([wc["wr_id"] for wc in wcs] == list(range(1, 2 * count + 1)), "completions in order")
        for number in range(count):
            at = LANDING + number * piece
            demand(responder.digest(at, piece) == written[number], f"WRITE {number}")
            same = requester.digest(at, piece) == responder.digest(number * piece, piece)
            demand(same, f"READ {number}")
        link.in_good_state()


def compare_swap(requester: Side, responder: Side, mtu: int) -> None:
    first, second = 0x1122334455667788, 0xFEDCBA9876543210
    with Connection(requester, responder, "RC", mtu) as link:
        responder.put_u64(LANDING, first)
        link.post("CMP_SWAP", 8, compare=first, swap=second)
        link.sent()
        demand(requester.get_u64(0) == first, "the old value of a hit", hex(requester.get_u64(0)))
        demand(responder.get_u64(LANDING) == second, "the swap of a hit")
        link.post("CMP_SWAP", 8, compare=first, swap=7)
        link.sent()
        demand(requester.get_u64(0) == second, "the old value of a miss")
        demand(responder.get_u64(LANDING) == second, "no swap on a miss")
        link.in_good_state()


def fetch_add(requester: Side, responder: Side, mtu: int) -> None:
    start, top = 0xFFFFFFFFFFFFFFF0, 1 << 64
    with Connection(requester, responder, "RC", mtu) as link:
        responder.put_u64(LANDING, start)
        for number in range(8):
            link.post("FETCH_ADD", 8, offset=8 * number, add=5)
        link.sent(8)
        old = [requester.get_u64(8 * number) for number in range(8)]
        demand(old == [(start + 5 * n) % top for n in range(8)], "the old values", old)
        demand(responder.get_u64(LANDING) == (start + 40) % top, "the sum modulo 2^64")
        link.in_good_state()


def atomic_write(requester: Side, responder: Side, mtu: int) -> None:
    for side in (requester, responder):
        if not side.has_atomic_write:
            raise NotOfferedError(f"{side.name} here has no ATOMIC WRITE")
    words = [0x0123456789ABCDEF + number for number in range(8)]
    with Connection(requester, responder, "RC", mtu) as link:
        for number, word in enumerate(words):
            requester.put_u64(8 * number, word)
            responder.put_u64(LANDING + 8 * number, 0)
            link.post("ATOMIC_WRITE", 8, offset=8 * number, at=LANDING + 8 * number)
        link.sent(8)
        found = [responder.get_u64(LANDING + 8 * number) for number in range(8)]
        demand(found == words, "the words that were written", found)
        sent = link.fill(mtu + 1)
        link.post("WRITE", mtu + 1)
        link.post("READ", 8, offset=LANDING)
        link.sent(2)
        demand(responder.digest(LANDING, mtu + 1) == sent, "the bytes written behind them")
        link.in_good_state()
        link.post("ATOMIC_WRITE", 8, rkey=link.far["rkey"] ^ 0x10055)
        link.sent(status=REM_ACCESS_ERR)


def receiver_not_ready(requester: Side, responder: Side, mtu: int) -> None:
    size = mtu + 3
    with Connection(requester, responder, "RC", mtu) as link:
        sent = link.fill(size)
        link.post("SEND", size)
        link.nothing_sent_for(0.3)
        link.post_recv(size)
        link.sent()
        link.received()
        demand(responder.digest(LANDING, size) == sent, "the bytes that were sent")
        sent = link.fill(size)
        link.post("WRITE_IMM", size, imm=1)
        link.nothing_sent_for(0.1)
        link.post_recv(0)
        link.sent()
        link.received()
        demand(responder.digest(LANDING, size) == sent, "the bytes that were written")
        link.in_good_state()


def bad_rkey(requester: Side, responder: Side, mtu: int) -> None:
    for op in ("WRITE", "READ", "FETCH_ADD"):
        with Connection(requester, responder, "RC", mtu) as link:
            before = responder.digest(LANDING, 64)
            more = {"add": 1} if op == "FETCH_ADD" else {}
            link.post(op, 8, rkey=link.far["rkey"] ^ 0x10055, **more)
            link.sent(status=REM_ACCESS_ERR)
            demand(responder.digest(LANDING, 64) == before, f"memory untouched by the {op}")


def both_ways(requester: Side, responder: Side, mtu: int) -> None:
    """Each side is requester and responder at once on one connection."""
    count, size = 24, mtu + 100
    with Connection(requester, responder, "RC", mtu) as link:
        sent, returned = [], []
        for number in range(count):
            link.post_recv(size, LANDING + number * size, number)
            requester.post_recv(link.qpn, LANDING + number * size, size, 100 + number)
        for number in range(count):
            sent.append(link.fill(size, number * size))
            responder.fill(number * size, size, 5000 + number)
            returned.append(responder.digest(number * size, size))
            link.post("SEND", size, number * size)
            wr = {"op": "SEND", "offset": number * size, "length": size, "wr_id": 200 + number}
            responder.post_send(link.far_qpn, wr)
        for side, qpn in ((requester, link.qpn), (responder, link.far_qpn)):
            wcs = side.wait(qpn, 2 * count, 30)
            good = len(wcs) == 2 * count and all(wc["status"] == SUCCESS for wc in wcs)
            demand(good, f"{2 * count} good completions at {side.name}", wcs)
        for number in range(count):
            at = LANDING + number * size
            demand(responder.digest(at, size) == sent[number], f"SEND {number} out")
            demand(requester.digest(at, size) == returned[number], f"SEND {number} back")
        link.in_good_state()


def uc(requester: Side, responder: Side, mtu: int) -> None:
    send(requester, responder, mtu, "UC")
    send_imm(requester, responder, mtu, "UC")
    write(requester, responder, mtu, "UC")
    write_imm(requester, responder, mtu, "UC")


def check_grh(grh: bytes, source: bytes) -> None:
    """The forty bytes before a datagram: an IPv6 header, or an IPv4 header in the second half."""
    if source[:12] == bytes(10) + b"\xff\xff":
        ip = grh[20:]
        demand((ip[0], ip[9], ip[12:16]) == (0x45, 17, source[12:]), "the IPv4 GRH", ip.hex())
    else:
        good = (grh[0] >> 4, grh[6], grh[8:24]) == (6, 17, source)
        demand(good, "the IPv6 GRH", grh.hex())


def ud(requester: Side, responder: Side, mtu: int) -> None:
    source = bytes.fromhex(requester.gid.replace(":", ""))
    with Connection(requester, responder, "UD", mtu) as link:
        for size in (0, 1, 61, mtu):
            sent = link.fill(size)
            link.post_recv(GRH_BYTES + mtu)
            link.post("SEND_IMM", size, imm=WITH_IMM)
            link.sent()
            (wc,) = link.received()
            demand(wc["byte_len"] == GRH_BYTES + size, f"byte_len {GRH_BYTES + size}", wc)
            demand(wc["imm"] == WITH_IMM, "the immediate", wc)
            found = responder.digest(LANDING + GRH_BYTES, size)
            demand(found == sent, f"the {size} bytes that were sent")
            check_grh(responder.get(LANDING, GRH_BYTES), source)
        link.in_good_state()


def lend(link: Connection, mw_type: int, size: int) -> dict[str, int]:
    """The responder binds a window to a part of its arena; returns addr and rkey."""
    window = link.responder.bind(link.far_qpn, mw_type, LANDING + GUARD, size, 77)
    (wc,) = link.responder.wait(link.far_qpn, 1, 30.0)
    demand((wc["wr_id"], wc["status"]) == (77, SUCCESS), "a good BIND", wc)
    return {"remote": window["addr"], "rkey": window["rkey"]}


def use(link: Connection, window: dict[str, int], size: int) -> None:
    """WRITE, READ and FETCH_ADD through the window."""
    sent = link.fill(size)
    link.post("WRITE", size, **window)
    link.sent()
    demand(link.responder.digest(LANDING + GUARD, size) == sent, f"the {size} bytes written")
    link.post("READ", size, offset=LANDING, **window)
    link.sent()
    demand(link.requester.digest(LANDING, size) == sent, f"the {size} bytes read")
    link.responder.put_u64(LANDING + GUARD, 41)
    link.post("FETCH_ADD", 8, add=1, **window)
    link.sent()
    demand(link.responder.get_u64(LANDING + GUARD) == 42, "the sum")


def refused(link: Connection, window: dict[str, int], size: int, why: str) -> None:
    """Nothing is written through a window that does not allow it."""
    before = link.responder.digest(LANDING, size + 2 * GUARD)
    link.fill(size)
    link.post("WRITE", size, **window)
    link.sent(status=REM_ACCESS_ERR)
    same = link.responder.digest(LANDING, size + 2 * GUARD) == before
    demand(same, f"memory untouched {why}")


def window_type_1(requester: Side, responder: Side, mtu: int) -> None:
    size = 2 * mtu + 8
    with Connection(requester, responder, "RC", mtu) as link:
        window = lend(link, 1, size)
        use(link, window, size)
        link.in_good_state()
        # rxe (6.1) bounds an access by the region under the window, not by the window.
        reach = 8 if responder.name == "softhca" else ARENA_BYTES
        beyond = {**window, "remote": window["remote"] + reach}
        refused(link, beyond, size, "beyond the window")


def window_local_inv(requester: Side, responder: Side, mtu: int) -> None:
    size = 2 * mtu + 8
    with Connection(requester, responder, "RC", mtu) as link:
        window = lend(link, 2, size)
        use(link, window, size)
        wr = {"op": "LOCAL_INV", "offset": 0, "length": 0, "wr_id": 78, "rkey": window["rkey"]}
        responder.post_send(link.far_qpn, wr)
        (wc,) = responder.wait(link.far_qpn, 1, 30.0)
        demand((wc["wr_id"], wc["status"]) == (78, SUCCESS), "a good LOCAL_INV", wc)
        link.in_good_state()
        refused(link, window, size, "after LOCAL_INV")


def window_send_inv(requester: Side, responder: Side, mtu: int) -> None:
    size = 2 * mtu + 8
    with Connection(requester, responder, "RC", mtu) as link:
        window = lend(link, 2, size)
        use(link, window, size)
        link.post_recv(100, LANDING + 4 * size, 5)
        sent = link.fill(100)
        link.post("SEND_INV", 100, rkey=window["rkey"])
        link.sent()
        (wc,) = link.received()
        demand((wc["wr_id"], wc["inv"]) == (5, window["rkey"]), "the key that went", wc)
        demand(responder.digest(LANDING + 4 * size, 100) == sent, "the 100 bytes sent")
        link.in_good_state()
        refused(link, window, size, "after SEND with invalidate")


def window_of_another_qp(requester: Side, responder: Side, mtu: int) -> None:
    """A window of type 2 is open to the queue pair that bound it, of type 1 to the domain."""
    for mw_type in (1, 2):
        with (
            Connection(requester, responder, "RC", mtu) as owner,
            Connection(requester, responder, "RC", mtu) as other,
        ):
            window = lend(owner, mw_type, mtu)
            if mw_type == 1:
                use(other, window, mtu)
            else:
                refused(other, window, mtu, "through another queue pair")
                use(owner, window, mtu)


CHECKS: list[tuple[str, Check]] = [
    ("RC SEND", send),
    ("RC SEND with immediate", send_imm),
    ("RC WRITE", write),
    ("RC WRITE with immediate", write_imm),
    ("RC READ", read),
    ("RC WRITE and READ, 240 KiB", bulk),
    ("RC CMP_SWAP", compare_swap),
    ("RC FETCH_ADD", fetch_add),
    ("RC ATOMIC WRITE", atomic_write),
    ("RC receiver not ready", receiver_not_ready),
    ("RC wrong rkey is refused", bad_rkey),
    ("RC both ways at once", both_ways),
    ("RC window of type 1", window_type_1),
    ("RC window, LOCAL_INV", window_local_inv),
    ("RC window, SEND with inv", window_send_inv),
    ("RC windows and queue pairs", window_of_another_qp),
    ("UC SEND and WRITE", uc),
    ("UD SEND", ud),
]

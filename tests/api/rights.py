"""The model of who may do what, and the bench that cases are tried on.

The model knows nothing of the adapter: sets of rights, ranges as Python integers, and where each
byte of a key lies in an arena. It says how an access must end, and what memory holds afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import softhca as hca
from softhca import Access, BindInfo, BindMw, MrType, MwType, QPState, RegMr, WcStatus
from softhca._adapter import buffer_address

from .hosts import Host, Pair

TOP = 1 << 64
WHOLE = TOP - 1
ARENA_BYTES = 4096
# What the region covers of the arena; there are guards on both sides.
REGION = range(1024, 3072)
# What the window covers, in bytes of the region.
WINDOW = range(512, 1024)
# The pieces that a region for fast registration consists of, in bytes of the arena.
PIECES = [range(1024, 1824), range(2000, 2001), range(2200, 3272)]

LW, RR, RW, RA = (
    Access.LOCAL_WRITE,
    Access.REMOTE_READ,
    Access.REMOTE_WRITE,
    Access.REMOTE_ATOMIC,
)
FLUSH = Access.FLUSH_GLOBAL
NONE = Access(0)


def subsets(*rights: Access) -> list[Access]:
    found = [NONE]
    for right in rights:
        found += [before | right for before in found]
    return found


# Rights that a region may be registered with (IBTA Vol 1, 10.6.3).
REGION_RIGHTS = [
    rights for rights in subsets(LW, RR, RW, RA) if LW in rights or not rights & (RW | RA)
]
WINDOW_RIGHTS = subsets(RR, RW, RA)

NEEDS = {
    "WRITE": RW,
    "WRITE_IMM": RW,
    "READ": RR,
    "FETCH_ADD": RA,
    "CMP_SWAP": RA,
    "MASKED_CMP_SWAP": RA,
    "MASKED_FETCH_ADD": RA,
    "ATOMIC_WRITE": RW,
    "FLUSH": FLUSH,
}
ATOMICS = ("FETCH_ADD", "CMP_SWAP", "MASKED_CMP_SWAP", "MASKED_FETCH_ADD")
WORDS = (*ATOMICS, "ATOMIC_WRITE")


@dataclass(frozen=True)
class Key:
    """A key under test: what it may, and what it covers.

    Attributes:
        first: What the key calls the first byte.
        places: Where each byte lies in the arena.
    """

    kind: str
    rkey: int
    first: int
    places: list[int] = field(repr=False)
    rights: Access

    @property
    def length(self) -> int:
        return len(self.places)

    def covers(self, address: int, length: int) -> bool:
        end = address + length
        return self.first <= address and end <= self.first + self.length and end <= TOP


@dataclass(frozen=True)
class Attempt:
    """What a case tries: an operation on a range, through one of the bench's queue pairs."""

    op: str
    address: int
    length: int
    through: str = "the owner"


def outcome(key: Key, attempt: Attempt, qp_rights: Access) -> WcStatus:
    """How the access must end for who asks."""
    need = NEEDS[attempt.op]
    if need & ~qp_rights:
        # The queue pair's flags: an invalid request, but for FLUSH.
        return WcStatus.REM_ACCESS_ERR if attempt.op == "FLUSH" else WcStatus.REM_INV_REQ_ERR
    if attempt.op in WORDS and attempt.address % 8:
        return WcStatus.REM_INV_REQ_ERR
    if attempt.through == "another domain":
        return WcStatus.REM_ACCESS_ERR
    if key.kind in ("2A", "2B") and attempt.through == "another queue pair":
        return WcStatus.REM_ACCESS_ERR
    if need & ~key.rights or not key.covers(attempt.address, attempt.length):
        return WcStatus.REM_ACCESS_ERR
    if attempt.op in WORDS:
        # What lies in two places cannot change at once.
        at = attempt.address - key.first
        places = key.places[at : at + 8]
        if places != list(range(places[0], places[0] + 8)):
            return WcStatus.REM_ACCESS_ERR
    return WcStatus.SUCCESS


def ranges_of(first: int, length: int, sizes: tuple[int, ...]) -> list[tuple[int, int]]:
    """(address, bytes) below, at, across and above both ends of a range, and around 2^64."""
    found = set()
    for size in sizes:
        starts = [
            first - 8,
            first - size,
            first,
            first + 8,
            first + length - size,
            first + length - size + 8,
            first + length,
            TOP - 8,
            0,
            TOP >> 1,
        ]
        found |= {(start % TOP, size) for start in starts}
    return sorted(found)


class Bench:
    """Host b owns an arena, host a tries to reach it through several queue pairs."""

    NAMES = ("the owner", "another queue pair", "another domain")

    def __init__(self, pair: Pair, qp_type: hca.QPType = hca.QPType.RC) -> None:
        self.pair = pair
        self.qp_type = qp_type
        self.a, self.b = pair.a, pair.b
        self.other_pd = self.b.keep(self.b.device.alloc_pd())
        self.arena = bytearray(ARENA_BYTES)
        self.start = buffer_address(self.arena)
        self.pin = memoryview(self.arena)
        self.lines: dict[str, tuple[hca.QP, hca.QP]] = {}
        for name in self.NAMES:
            pd = self.other_pd if name == "another domain" else self.b.pd
            near = self.a.qp(qp_type, max_send_wr=8, max_inline_data=64)
            far = pd.create_qp(qp_type, send_cq=self.b.cq, recv_cq=self.b.cq, max_send_wr=8)
            self.lines[name] = (near, self.b.keep(far))
        self.qp_rights = RR | RW | RA | FLUSH
        self.connect_all()

    def connect_all(self) -> None:
        for near, far in self.lines.values():
            self.connect(near, far)

    def connect(self, near: hca.QP, far: hca.QP) -> None:
        for qp in (near, far):
            qp.modify(qp_state=QPState.RESET)
        # The smallest packets, so that an access may leave its range in the second one.
        once = {"retry_cnt": 0} if self.qp_type is hca.QPType.RC else {}
        near.connect(far.info(), path_mtu=hca.Mtu.MTU_256, **once)
        far.connect(near.info(), qp_access_flags=self.qp_rights, path_mtu=hca.Mtu.MTU_256)
        for host in (self.a, self.b):
            while host.cq.poll(64):
                pass

    @property
    def owner(self) -> hca.QP:
        return self.lines["the owner"][1]

    def done(self, host: Host) -> hca.WC:
        return self.pair.completion(host)

    # --- keys

    def region(self, rights: Access, iova: int | None = None) -> hca.MR:
        return self.b.pd.reg_mr(
            addr=self.start + REGION.start, length=len(REGION), iova=iova, access=rights
        )

    def key_of_region(self, mr: hca.MR) -> Key:
        return Key("region", mr.lkey, mr.addr, list(REGION), mr.access)

    def bind(self, mw: hca.MW, mr: hca.MR, rights: Access) -> Key:
        """Binds a window of either type, which must succeed."""
        bind = BindInfo(mr, mr.addr + WINDOW.start, len(WINDOW), rights)
        if mw.type is MwType.TYPE_1:
            remote = self.owner.bind_mw(mw, bind, signaled=True)
        else:
            wr = BindMw(mw, bind, rkey=hca.inc_rkey(mw.rkey), signaled=True)
            self.owner.post_send(wr)
            remote = wr.remote
        wc = self.done(self.b)
        assert wc.ok, wc.why
        windows = self.b.device.query_device().device_cap_flags
        two = "2A" if hca.DeviceCap.MEM_WINDOW_TYPE_2A in windows else "2B"
        kind = "type 1" if mw.type is MwType.TYPE_1 else two
        return Key(kind, remote.rkey, remote.addr, [REGION[at] for at in WINDOW], rights)

    def register(self, mr: hca.FastMR, rights: Access) -> Key:
        self.owner.post_send(RegMr(mr, access=rights, signaled=True))
        wc = self.done(self.b)
        assert wc.ok, wc.why
        places = [place for piece in PIECES for place in piece]
        return Key("fast", mr.rkey, mr.addr, places, rights)

    def fast_region(self, iova: int | None = None) -> hca.FastMR:
        mr = self.b.pd.alloc_mr(MrType.SG_GAPS, len(PIECES))
        mr.map_mr_sg([(self.start + piece.start, len(piece)) for piece in PIECES], iova=iova)
        return mr

    # --- attempts

    def request(self, attempt: Attempt, rkey: int) -> hca.SendRequest:
        size = attempt.length
        remote = hca.RemoteMemory(attempt.address, rkey, size)
        part = self.a.mr[64 : 64 + size]
        options: dict[str, Any] = {"remote": remote, "signaled": True}
        match attempt.op:
            case "WRITE":
                return hca.Write(part, **options)
            case "WRITE_IMM":
                return hca.WriteImm(part, imm=1, **options)
            case "READ":
                return hca.Read(part, **options)
            case "FETCH_ADD":
                return hca.FetchAdd(part, add=3, **options)
            case "CMP_SWAP":
                return hca.CmpSwap(part, compare=0x0101010101010101 * 7, swap=9, **options)
            case "MASKED_CMP_SWAP":
                operands = {
                    "compare": 0x07,
                    "compare_mask": 0xFF,
                    "swap": 0x0900,
                    "swap_mask": 0xFF00,
                }
                return hca.MaskedCmpSwap(part, **operands, **options)
            case "MASKED_FETCH_ADD":
                return hca.MaskedFetchAdd(part, add=3, boundary=1 << 63, **options)
            case "ATOMIC_WRITE":
                return hca.AtomicWrite(part, **options)
            case _:
                return hca.Flush(**options)

    def attempt(self, key: Key, attempt: Attempt) -> None:
        """Tries it, and holds the outcome and every byte of both sides to the model."""
        near, far = self.lines[attempt.through]
        expected = outcome(key, attempt, self.qp_rights)
        size = attempt.length
        self.arena[:] = b"\x07" * ARENA_BYTES
        asker = bytearray(b"\x55" * (size + 128))
        asker[64 : 64 + size] = b"\xee" * size
        self.a.buffer[: len(asker)] = asker
        arena = bytearray(self.arena)
        if expected is WcStatus.SUCCESS:
            self.apply(key, attempt, arena, asker)
        if attempt.op == "WRITE_IMM":
            far.post_recv(hca.Recv())
        near.post_send(self.request(attempt, key.rkey))
        wc = self.done(self.a)
        if self.qp_type is hca.QPType.UC:
            # Nobody tells the asker, and what is refused is dropped.
            self.pair.wire.settle()
            assert wc.ok, (key, attempt, wc.why)
        else:
            assert wc.status is expected, (key, attempt, wc.why)
        assert self.arena == arena, (key, attempt, "a byte of the owner's")
        assert self.a.buffer[: len(asker)] == asker, (key, attempt, "a byte of the asker's")
        if expected is not WcStatus.SUCCESS:
            ended = QPState.RTS if self.qp_type is hca.QPType.UC else QPState.ERR
            assert far.state is ended, (key, attempt)
            assert not any(wc.ok for wc in self.b.cq.poll(4)), (key, attempt)
            self.connect(near, far)
        elif attempt.op == "WRITE_IMM":
            assert self.done(self.b).ok

    def apply(self, key: Key, attempt: Attempt, arena: bytearray, asker: bytearray) -> None:
        """What a success leaves behind."""
        at = attempt.address - key.first
        places = key.places[at : at + attempt.length]
        before = bytes(arena[place] for place in places)
        content = bytes(asker[64 : 64 + attempt.length])
        match attempt.op:
            case "WRITE" | "WRITE_IMM" | "ATOMIC_WRITE":
                after = content
            case "FETCH_ADD" | "MASKED_FETCH_ADD":
                after = (int.from_bytes(before, "little") + 3).to_bytes(8, "little")
            case "CMP_SWAP":
                after = (9).to_bytes(8, "little")
            case "MASKED_CMP_SWAP":
                after = bytes([before[0], 9, *before[2:]])
            case _:
                after = before
        for place, byte in zip(places, after, strict=True):
            arena[place] = byte
        if attempt.op in ("READ", *ATOMICS):
            asker[64 : 64 + attempt.length] = before


def attempts(op: str, key: Key) -> list[Attempt]:
    """Every place for the owner's queue pair, two for the others."""
    sizes = (8,) if op in WORDS else (16, 300)
    tried = [
        Attempt(op, address, size)
        for address, size in ranges_of(key.first, key.length, sizes)
        if address + size <= TOP or op not in WORDS
    ]
    for name in Bench.NAMES[1:]:
        tried += [Attempt(op, (key.first + at) % TOP, sizes[0], name) for at in (0, key.length)]
    return tried

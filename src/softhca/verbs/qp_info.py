"""What two queue pairs must know of each other to connect."""

from __future__ import annotations

import errno
import struct
from dataclasses import dataclass
from typing import TypeVar

from softhca.verbs.checks import instance, packed_bytes, unsigned
from softhca.verbs.enums import Mtu, QPType
from softhca.verbs.errors import VerbsError
from softhca.verbs.gid import GID

# Format 1: version, type, MTU code, read/atomic depth; QPN, PSN, Q_Key, SRQN; GID.
_LAYOUT = struct.Struct(">BBBBIIII16s")
_VERSION = 1


E = TypeVar("E", Mtu, QPType)


def _named(argument: str, value: E, example: E) -> E:
    """The member of an enumeration that has the value; EINVAL if none has it."""
    kind = type(example)
    try:
        return kind(value)
    except ValueError:
        rule = f"must be of {kind.__name__}, such as {kind.__name__}.{example.name}"
        raise VerbsError(errno.EINVAL, argument, value, rule) from None


@dataclass(frozen=True)
class QPInfo:
    """One side of a connection: `qp.info()` here, `qp.connect()` there.

    Attributes:
        gid: Where the queue pair is.
        qpn: Its number.
        psn: First PSN that it sends.
        mtu: Largest path MTU that its port carries.
        qkey: UD: its Q_Key.
        rd_atomic: READs and atomics that it answers at once.
        qp_type: Its service type.
        srqn: XRC: shared receive queue that the peer shall name; whoever sends the info sets it.

    Raises:
        VerbsError: EINVAL, for a number out of range, or an MTU or type that there is not.
        TypeError: If `gid` is no GID.
    """

    gid: GID
    qpn: int
    psn: int
    mtu: Mtu
    qkey: int = 0
    rd_atomic: int = 16
    qp_type: QPType = QPType.RC
    srqn: int = 0

    def __post_init__(self) -> None:
        instance("gid", self.gid, GID)
        object.__setattr__(self, "mtu", _named("mtu", self.mtu, Mtu.MTU_1024))
        object.__setattr__(self, "qp_type", _named("qp_type", self.qp_type, QPType.RC))
        unsigned("rd_atomic", self.rd_atomic, 8)
        unsigned("qpn", self.qpn, 24)
        unsigned("psn", self.psn, 24)
        unsigned("qkey", self.qkey, 32)
        unsigned("srqn", self.srqn, 24)

    def to_bytes(self) -> bytes:
        """Packs into 36 bytes, the same on every machine."""
        return _LAYOUT.pack(
            _VERSION,
            self.qp_type,
            self.mtu,
            self.rd_atomic,
            self.qpn,
            self.psn,
            self.qkey,
            self.srqn,
            self.gid.raw,
        )

    @classmethod
    def from_bytes(cls, packed: bytes | bytearray | memoryview) -> QPInfo:
        """Unpacks what `to_bytes` packed.

        Raises:
            VerbsError: EINVAL, if these are not such bytes.
            TypeError: If these are no bytes.
        """
        taken = packed_bytes("packed", packed, _LAYOUT.size)
        version, qp_type, mtu, rd_atomic, qpn, psn, qkey, srqn, gid = _LAYOUT.unpack(taken)
        if version != _VERSION:
            raise VerbsError(errno.EINVAL, "packed", version, f"must be of format {_VERSION}")
        try:
            return cls(
                gid=GID(gid),
                qpn=qpn,
                psn=psn,
                mtu=Mtu(mtu),
                qkey=qkey,
                rd_atomic=rd_atomic,
                qp_type=QPType(qp_type),
                srqn=srqn,
            )
        except (ValueError, VerbsError) as error:
            raise VerbsError(errno.EINVAL, "packed", None, str(error)) from None


# Bytes of a packed QPInfo, for whoever reads one from a socket.
QP_INFO_BYTES = _LAYOUT.size

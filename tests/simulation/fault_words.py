"""A script of faults, which a fabric and a real adapter are given unchanged."""

from __future__ import annotations

from softhca.testing import Fault, FaultPacket, PacketFaults


def bad_day(faults: PacketFaults) -> list[Fault]:
    """A bit of everything that packets can meet."""

    def holds_an_x(packet: FaultPacket) -> bool:
        return packet.payload[:1] == b"x"

    def twice(packet: FaultPacket) -> list[bytes] | None:
        return [packet.datagram, packet.datagram] if packet.psn % 5 == 0 else None

    return [
        faults.drop(opcode="RC_RDMA_WRITE*", nth=[1, 7, 8]),
        faults.drop(opcode="RC_ACKNOWLEDGE", probability=0.1),
        faults.duplicate(opcode="RC_RDMA_WRITE*", every=6),
        faults.reorder(by=2, opcode="RC_RDMA_WRITE*", every=7),
        faults.delay((10_000, 2_000_000), probability=0.1),
        faults.corrupt("payload", where=holds_an_x, times=3),
        faults.truncate(30, opcode="RC_RDMA_WRITE_ONLY", nth=11),
        faults.script(twice, opcode="RC_RDMA_WRITE_ONLY"),
    ]

"""PyPI's `ibverbs`, a binding that is none of ours: two queue pairs, a WRITE and a SEND."""

import ctypes

import ibverbs as ib

LENGTH = 100_000


def main() -> None:
    """Moves bytes, and compares them."""
    context = ib.get_device_list()[0].open()
    pd, cq = context.alloc_pd(), context.create_cq(64)
    access = ib.AccessFlags.LOCAL_WRITE | ib.AccessFlags.REMOTE_WRITE
    rooms = [(ctypes.c_char * LENGTH)() for _ in range(2)]
    regions = [pd.reg_mr(ctypes.addressof(room), LENGTH, access) for room in rooms]
    wishes = ib.QPInitAttr(send_cq=cq, recv_cq=cq, qp_type=ib.QPType.RC)
    ends = [pd.create_qp(wishes) for _ in range(2)]
    port, gid = context.query_port(1), context.query_gid(1, 0)
    names = [ib.local_qp_info(qp, port, gid, port=1, psn=0) for qp in ends]
    for qp, other in zip(ends, reversed(names), strict=True):
        there = ib.QPInfo.from_bytes(other.to_bytes())
        ib.connect_rc(qp, there, port=1, sgid_index=0, access=access)
    right = bytes(number % 251 for number in range(LENGTH))
    for opcode in (ib.WROpcode.RDMA_WRITE, ib.WROpcode.SEND):
        rooms[0].raw, rooms[1].raw = right, bytes(LENGTH)
        if opcode == ib.WROpcode.SEND:
            ends[1].post_recv(ib.RecvWR(wr_id=2, sg_list=[ib.SGE(regions[1], LENGTH)]))
        ends[0].post_send(
            ib.SendWR(
                wr_id=1,
                sg_list=[ib.SGE(regions[0], LENGTH)],
                opcode=opcode,
                send_flags=ib.SendFlags.SIGNALED,
                remote_addr=ctypes.addressof(rooms[1]),
                rkey=regions[1].rkey,
            )
        )
        awaited = {1} if opcode == ib.WROpcode.RDMA_WRITE else {1, 2}
        while awaited:
            for completion in cq.poll(16):
                completion.raise_for_status()
                awaited.remove(completion.wr_id)
        assert rooms[1].raw == right, opcode
    print(f"{2 * LENGTH} bytes are right")


if __name__ == "__main__":
    main()

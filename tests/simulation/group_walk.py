"""A random walk over datagrams: to groups whose members come and go, and to one.

Queue pairs of several hosts join groups, leave them, and go. Messages of all lengths up to the MTU
and one byte beyond it leave from several places in memory, or inline, and find receives that fit,
that are cut in pieces, that are too short, or none. While nothing changes, the model says what each
member receives; while something does, that nobody receives what is not for it, twice, or changed.

Run it with `python -m simulation.group_walk FIRST COUNT [LINK...]`, with tests/ on the path.
"""

from __future__ import annotations

import os
import random
from collections import deque

import softhca as hca
from softhca import QPState, WcStatus
from softhca.testing import Fabric

from .group_ends import (
    CANARY,
    DEPTH,
    EVERYONE,
    GRH,
    HEADERS,
    INLINE,
    IP_BYTES,
    SGES,
    UDP,
    UDP_BYTES,
    Member,
    Message,
    Receive,
)
from .real_hosts import RealHosts
from .walk_command import main


class GroupWalk:
    """One walk.

    Args:
        world: Where; its seed decides what is done.
        lossy: Whether datagrams may be lost, doubled or late.
    """

    def __init__(self, world: Fabric | RealHosts, lossy: bool) -> None:
        self.world, self.lossy = world, lossy
        self.draw = draw = random.Random(world.seed ^ 0x96)
        self.on_wire = isinstance(world, RealHosts)
        count, place = draw.choice([2, 3]), draw.randrange(1 << 16)
        if isinstance(world, Fabric) and draw.random() < 0.3:
            self.hosts = [world.host(gid=f"fd00::{n + 1}") for n in range(count)]
            self.groups = [hca.GID(f"ff15::{place:x}:{n}") for n in range(3)]
        else:
            self.hosts = world.hosts(count, retry_early=True)
            base = f"239.{place >> 8}.{place & 255}"
            self.groups = [hca.GID(f"{base}.{n}") for n in range(3)]
        # Others of this machine may use the same groups.
        self.qkey = os.getpid() if self.on_wire else 0x1234
        self.members: dict[int, Member] = {}
        self.under_way: dict[int, Message] = {}
        self.numbers = self.done = 0
        for _ in range(3):
            self.join_in()

    def join_in(self) -> None:
        self.numbers += 1
        device = self.draw.choice(self.hosts)
        self.members[self.numbers] = Member(self.numbers, device, self.qkey)

    # --- what changes who receives

    def changed(self, member: Member) -> None:
        """What is under way to it may arrive, or not."""
        for message in self.under_way.values():
            message.certain.discard(member.number)
            if member.number in message.far:
                message.possible.add(member.number)

    def attach(self, member: Member) -> None:
        group = self.draw.choice(self.groups)
        if group not in member.groups:
            for message in self.under_way.values():
                if message.to == group and not message.is_refused:
                    message.far.add(member.number)
        self.changed(member)
        # A second time changes nothing.
        member.qp.attach_mcast(group)
        member.groups.add(group)

    def detach(self, member: Member) -> None:
        if member.groups:
            self.changed(member)
            group = self.draw.choice(sorted(member.groups, key=str))
            member.qp.detach_mcast(group)
            member.groups.discard(group)

    def go(self, member: Member) -> None:
        """It leaves, with its receives and whatever is on its way to it."""
        del self.members[member.number]
        for message in self.under_way.values():
            for members in (message.far, message.certain, message.possible):
                members.discard(member.number)
        member.close()

    def receive(self, member: Member) -> None:
        """A receive, which may be too short for what comes."""
        draw = self.draw
        if not member.places:
            return
        self.changed(member)
        place = member.places.pop(draw.randrange(len(member.places)))
        most = GRH + member.mtu
        rooms = [most, most, most, most + 1, most - 1, GRH + 300, GRH + 1, GRH, GRH - 1, 0]
        room = most if draw.random() < 0.6 else draw.choice(rooms)
        count = draw.choice([1, 1, 2, 3, SGES])
        cuts = sorted(
            draw.choice([0, 20, 39, 40, 41, room, draw.randrange(room + 1)])
            for _ in range(count - 1)
        )
        cuts = [min(cut, room) for cut in cuts]
        ends = zip([0, *cuts], [*cuts, room], strict=True)
        self.numbers += 1
        made = Receive(self.numbers, place, [(a, b - a) for a, b in ends])
        start = place * member.slot
        member.buffer[start : start + member.slot] = bytes([CANARY]) * member.slot
        sges = [member.mr[start + a : start + a + n] for a, n in made.pieces]
        member.qp.post_recv(hca.Recv(*sges, wr_id=made.number))
        member.receives.append(made)

    # --- sending

    def send(self, member: Member) -> None:
        """A burst to a group, or to one."""
        draw = self.draw
        settled = not self.under_way
        if draw.random() < 0.8:
            to, qpn = draw.choice(self.groups), EVERYONE
            far = [m for m in self.members.values() if to in m.groups]
        else:
            one = draw.choice(list(self.members.values()))
            to, qpn, far = one.device.gid, one.qp.qpn, [one]
        # Which of two senders is first is not known.
        for one in far:
            self.changed(one)
        ah = member.pd.create_ah(to)
        qkey = self.qkey ^ (draw.random() < 0.05)
        for _ in range(draw.choice([1, 1, 2, 5])):
            if len(member.sent) >= DEPTH:
                break
            if not self._send_one(member, ah, to, qpn, qkey, far):
                break
        ah.close()
        if settled and not self.lossy:
            self._foretell()

    def _send_one(
        self, member: Member, ah: hca.AH, to: hca.GID, qpn: int, qkey: int, far: list[Member]
    ) -> bool:
        draw, mtu = self.draw, member.mtu
        size = draw.choice([0, 1, 3, 4, INLINE, INLINE + 1, 300, mtu - 1, mtu, mtu, mtu + 1])
        if size > mtu and draw.random() < 0.5:
            size = mtu
        self.numbers += 1
        data = draw.randbytes(size)
        options = {
            "wr_id": self.numbers,
            "imm": self.numbers,
            "ah": ah,
            "remote_qpn": qpn,
            "remote_qkey": qkey,
            "signaled": True,
        }
        if size <= INLINE and draw.random() < 0.5:
            member.qp.post_send(hca.SendImm(data, inline=True, **options))
        else:
            member.qp.post_send(hca.SendImm(*self._pieces(member, data), **options))
        long = size > mtu
        member.sent.append((self.numbers, WcStatus.LOC_LEN_ERR if long else WcStatus.SUCCESS))
        if not long:
            is_refused = qkey != self.qkey
            message = Message(self.numbers, member, to, data, is_refused, set())
            if not is_refused:
                message.far = {m.number for m in far}
                message.possible = set(message.far)
            self.under_way[self.numbers] = message
            return True
        # The send queue waits in SQE, and goes on when it is told to.
        self._sent(member, wait=True)
        assert member.qp.query().qp_state is QPState.SQE
        member.qp.modify(qp_state=QPState.RTS)
        return False

    def _pieces(self, member: Member, data: bytes) -> list[hca.Sge]:
        draw = self.draw
        # What is sent stays as it is until it has left.
        self._sent(member, wait=True)
        start = draw.randrange(member.mtu - 1)
        member.source[start : start + len(data)] = data
        count = draw.choice([1, 1, 2, SGES])
        cuts = sorted(
            draw.choice([0, 1, len(data), draw.randrange(len(data) + 1)]) for _ in range(count - 1)
        )
        cuts = [min(cut, len(data)) for cut in cuts]
        ends = zip([0, *cuts], [*cuts, len(data)], strict=True)
        return [member.source_mr[start + a : start + b] for a, b in ends]

    def _foretell(self) -> None:
        """Each member takes the messages in order; one that is too long leaves the receive."""
        for member in self.members.values():
            receives = deque(member.receives)
            for message in self.under_way.values():
                if member.number not in message.possible:
                    continue
                if receives and receives[0].room >= GRH + len(message.data):
                    receives.popleft()
                    message.certain.add(member.number)
                else:
                    message.possible.discard(member.number)

    # --- polling

    def poll(self) -> None:
        for member in list(self.members.values()):
            for wc in self._polled(member, 1):
                self._received(member, wc)
            self._sent(member, wait=False)
        for device in {id(d): d for d in self.hosts}.values():
            while (event := device.poll_async_event()) is not None:
                event.ack()

    def _polled(self, member: Member, which: int) -> list[hca.WC]:
        adapter, cq = member.device.adapter, member.cqs[which]
        wcs = adapter.poll_cq(cq.handle, DEPTH, hca.WC, progress=self.on_wire)
        self.done += len(wcs)
        return list(wcs)

    def _sent(self, member: Member, *, wait: bool) -> None:
        for turn in range(3000):
            for wc in self._polled(member, 0):
                number, status = member.sent.popleft()
                assert (wc.wr_id, wc.status) == (number, status), f"{wc!r} {wc.why}"
            if not wait or not member.sent:
                return
            self.world.run_for(1e-5 if turn < 200 else 1e-3)
        raise AssertionError(f"{member.sent} have not left")

    def _received(self, member: Member, wc: hca.WC) -> None:
        receive = member.receives.popleft()
        assert wc.wr_id == receive.number, "receives complete in order"
        assert wc.ok, f"{wc!r} {wc.why}"
        assert wc.imm_data is not None
        message = self.under_way.get(wc.imm_data)
        assert message is not None, f"{wc!r} was not sent, or not a moment ago"
        data = message.data
        assert member.number in message.possible, f"{wc!r} is not for {member.qp!r}"
        if not self.lossy:
            message.far.discard(member.number)
            message.possible.discard(member.number)
        message.certain.discard(member.number)
        assert wc.byte_len == GRH + len(data), (wc, len(data))
        assert wc.src_qp == message.sender.qp.qpn, wc
        assert hca.WcFlags.GRH in wc.wc_flags, wc
        start = receive.place * member.slot
        got = bytes(member.buffer[start : start + member.slot])
        self._check_grh(got[:GRH], message)
        assert got[GRH : GRH + len(data)] == data, "a message arrived changed"
        rest = got[GRH + len(data) :]
        assert rest == bytes([CANARY]) * len(rest), "more was written than arrived"
        member.places.append(receive.place)

    def _check_grh(self, grh: bytes, message: Message) -> None:
        sender = message.sender.device.gid
        padded = len(message.data) + -len(message.data) % 4
        datagram = UDP_BYTES + HEADERS + padded
        if grh[0] >> 4 == 6:
            assert (int.from_bytes(grh[4:6], "big"), grh[6]) == (datagram, UDP)
            assert (grh[8:24], grh[24:]) == (sender.raw, message.to.raw)
            return
        unused, ip = grh[:IP_BYTES], grh[IP_BYTES:]
        assert (unused, ip[0], ip[9]) == (bytes(IP_BYTES), 0x45, UDP)
        assert int.from_bytes(ip[2:4], "big") == IP_BYTES + datagram
        assert (ip[12:16], ip[16:20]) == (sender.raw[12:], message.to.raw[12:])

    def quiet(self) -> None:
        """Until all that must come has come, and nothing else is on its way."""
        for turn in range(3000):
            self.poll()
            if not any(m.certain for m in self.under_way.values()):
                break
            self.world.run_for(20e-6 if turn < 200 else 1e-3)
        late = [m for m in self.under_way.values() if m.certain]
        assert self.lossy or not late, f"{late} did not arrive"
        self.world.run_for(2e-4)
        for member in list(self.members.values()):
            self._sent(member, wait=True)
        for _ in range(20 if self.on_wire else 4):
            self.poll()
        # What may still come is remembered for long enough.
        kept = 200 if self.lossy else 60 if self.on_wire else 0
        for number, message in list(self.under_way.items()):
            message.certain.clear()
            is_over = not message.possible and not self.lossy
            if is_over or number <= self.numbers - kept:
                del self.under_way[number]

    def run(self, steps: int) -> None:
        draw = self.draw
        for _ in range(steps):
            member = draw.choice(list(self.members.values()))
            what = draw.random()
            if what < 0.83 and draw.random() < 0.7:
                self.quiet()
            if what < 0.25:
                self.send(member)
            elif what < 0.60:
                for _ in range(draw.choice([1, 1, 4])):
                    self.receive(member)
            elif what < 0.72:
                self.attach(member)
            elif what < 0.78:
                self.detach(member)
            elif what < 0.81 and len(self.members) < 8:
                self.join_in()
            elif what < 0.83 and len(self.members) > 2:
                if all(m.sender is not member for m in self.under_way.values()):
                    self.go(member)
            else:
                self.poll()
                self.world.run_for(draw.choice([1e-6, 1e-5, 1e-4]))
        self.quiet()


def faults(fabric: Fabric) -> bool:
    """A bad network, now and then."""
    draw = random.Random(fabric.seed ^ 0xBAD)
    if draw.random() < 0.6:
        return False
    for word in ("drop", "duplicate", "reorder", "corrupt"):
        if draw.random() < 0.5:
            getattr(fabric.faults, word)(probability=0.04)
    return True


def walk(seed: int, steps: int = 250, link: str = "fabric") -> int:
    """Walks once; returns how many completions there were."""
    if link != "fabric":
        with RealHosts(seed, link) as hosts:
            here = GroupWalk(hosts, lossy=False)
            here.run(steps)
            return here.done
    with Fabric(seed) as fabric:
        one = fabric.keep(GroupWalk(fabric, faults(fabric)))
        one.run(steps)
        return one.done


if __name__ == "__main__":
    main(walk)

"""One end of a test: an adapter, a connection of some service type, and memory to move."""

from __future__ import annotations

import mmap
import os
import time
from collections import deque
from collections.abc import Sequence
from enum import StrEnum
from types import TracebackType
from typing import Any

import softhca
from softhca import QP, SRQ, QPInfo, QPType, Recv, RemoteMemory
from softhca.tools.command import FAILED, CommandError
from softhca.tools.side_channel import SideChannel

GRH_BYTES = 40  # What a UD receive has in front of its message.
ATOMIC_BYTES = 8

# 0.5 s: with the default seven retries an end is given up after 4 s, not after half a second, in
# which a busy machine may well not let it run. Losses are repaired by early probes, long before.
_ACK_TIMEOUT_CODE = 17

_SEND_TIMES = 1024  # More than ever complete between two looks at them.

# Empty polls between two looks at the clock, and after how long without a completion to look
# whether the other end still lives, to stop burning the CPU, and to give up.
_SPINS = 64
_SPIN_SECONDS = 0.005
_NAP_SECONDS = 0.0002
_LIVENESS_SECONDS = 0.2
_PATIENCE_SECONDS = 20.0


class Service(StrEnum):
    """A service type, by the name that the command line gives it."""

    RC = "rc"
    UC = "uc"
    UD = "ud"
    XRC = "xrc"


class Endpoint:
    """One end. Both ends exchange what `connect` needs over their side channel.

    Attributes:
        outgoing: Memory that messages are sent from and READs and atomics land in.
        incoming: Memory that messages arrive in, and that the other end's RDMA reaches.
        outgoing_mr: Its registration, as is `incoming_mr`.
        far: The other end's `incoming`.
        options: Keywords for every work request, such as where a datagram goes.
        completed: Sends that have completed.
        received: Receives that have completed.
        send_times_ns: When each send completed, by the adapter's clock; the latest ones only.
    """

    far: RemoteMemory
    _receives: QP | SRQ

    def __init__(
        self,
        channel: SideChannel,
        service: Service,
        *,
        memory_bytes: int,
        depth: int = 16,
        address: str | None = None,
        capture: str | os.PathLike[str] | None = None,
        mtu: int | None = None,
        link: str | None = None,
    ) -> None:
        self._channel = channel
        self.service = service
        self.options: dict[str, Any] = {}
        self.completed = 0
        self.received = 0
        self.send_times_ns: deque[int] = deque(maxlen=_SEND_TIMES)
        self.device = softhca.open(address, capture=capture, mtu=mtu, link=link)
        try:
            self._build(memory_bytes, depth)
        except BaseException:
            self.close()
            raise

    def _build(self, memory_bytes: int, depth: int) -> None:
        self._pd = self.device.alloc_pd()
        self.cq = self.device.create_cq(4 * depth)
        self._grh_bytes = GRH_BYTES if self.service is Service.UD else 0
        # Mappings begin at a page, which is what atomics need.
        self._memory = [mmap.mmap(-1, max(memory_bytes, ATOMIC_BYTES) + GRH_BYTES) for _ in "ab"]
        self.outgoing_mr, self.incoming_mr = (self._pd.reg_mr(part) for part in self._memory)
        self.outgoing = memoryview(self._memory[0])
        self.incoming = memoryview(self._memory[1])[self._grh_bytes :]
        if self.service is Service.XRC:
            self._build_xrc(depth)
        else:
            self.initiator = self.target = self._pd.create_qp(
                QPType[self.service.name],
                send_cq=self.cq,
                recv_cq=self.cq,
                max_send_wr=depth,
                max_recv_wr=2 * depth,
            )
            self._receives = self.target

    def _build_xrc(self, depth: int) -> None:
        self._xrcd = self.device.alloc_xrcd()
        self._receives = self._xrcd.create_srq(self._pd, self.cq, max_wr=2 * depth)
        self.initiator = self._pd.create_qp(QPType.XRC_SEND, send_cq=self.cq, max_send_wr=depth)
        self.target = self._xrcd.create_qp()

    def connect(self) -> None:
        """Exchanges addresses with the other end and goes to RTS; both call it."""
        srqn = self._receives.srqn if isinstance(self._receives, SRQ) else 0
        self._channel.send(
            initiator=self.initiator.info().to_bytes().hex(),
            target=self.target.info(srqn).to_bytes().hex(),
            incoming=self.incoming_mr.remote().to_bytes().hex(),
        )
        hello = self._channel.receive("initiator", "target", "incoming")
        try:
            packed = {key: bytes.fromhex(value) for key, value in hello.items()}
            initiator = QPInfo.from_bytes(packed["initiator"])
            self.peer = QPInfo.from_bytes(packed["target"])
            self.far = RemoteMemory.from_bytes(packed["incoming"])
        except (TypeError, ValueError):
            raise CommandError("the other end does not speak this protocol") from None
        if self.service is Service.UD:
            self.initiator.activate()
            self._ah = self._pd.create_ah(self.peer.gid)
            self.options = {
                "ah": self._ah,
                "remote_qpn": self.peer.qpn,
                "remote_qkey": self.peer.qkey or self.initiator.query().qkey,
            }
        else:
            reliable = {} if self.service is Service.UC else {"timeout": _ACK_TIMEOUT_CODE}
            self.initiator.connect(self.peer, **reliable)
            if self.target is not self.initiator:
                self.target.connect(initiator)
                self.options = {"srqn": self.peer.srqn}
        self._channel.barrier()

    @property
    def path_mtu_bytes(self) -> int:
        """Largest payload of a packet between the two ends."""
        return 128 << min(self.device.active_mtu, self.peer.mtu)

    def receive_wr(self, stop: int, start: int = 0) -> Recv:
        """A receive for one message into bytes `start` to `stop` of `incoming`."""
        return Recv(self.incoming_mr[start : stop + self._grh_bytes])

    def post_recv(self, wrs: Recv | Sequence[Recv]) -> None:
        """Posts receives, wherever this service type takes them from."""
        self._receives.post_recv(wrs)

    def post_send(self, wrs: Any) -> None:
        """Posts work requests to the queue pair that sends."""
        self.initiator.post_send(wrs)

    def poll(self, max_entries: int = 64) -> int:
        """Counts what has completed; returns how many.

        Raises:
            CompletionError: one of them in error.
        """
        completions = self.cq.poll(max_entries)
        for wc in completions:
            if not wc.ok:
                wc.raise_for_status()
            if wc.is_receive:
                self.received += 1
            else:
                self.completed += 1
                self.send_times_ns.append(wc.timestamp_ns)
        return len(completions)

    def wait_completed(self, total: int) -> None:
        """Waits until so many sends have completed since the beginning."""
        while self.completed < total:
            if not self.poll():
                self._linger(lambda: self.completed >= total)

    def wait_received(self, total: int) -> None:
        """Waits until so many receives have completed since the beginning."""
        while self.received < total:
            if not self.poll():
                self._linger(lambda: self.received >= total)

    def wait_byte(self, position: int, value: int) -> None:
        """Waits until the other end has written `value` into a byte of `incoming`."""
        incoming = self.incoming
        while incoming[position] != value:
            if not self.poll():
                self._linger(lambda: incoming[position] == value)

    def _linger(self, arrived: Any) -> None:
        """Polls until something comes: hot at first, then at leisure, and not for ever."""
        started = time.monotonic()
        looked = started
        while True:
            for _ in range(_SPINS):
                if self.poll() or arrived():
                    return
            now = time.monotonic()
            if now - started > _PATIENCE_SECONDS:
                raise CommandError(self._silence(), FAILED)
            if now - looked > _LIVENESS_SECONDS:
                looked = now
                self._channel.check()
            if now - started > _SPIN_SECONDS:
                time.sleep(_NAP_SECONDS)

    def _silence(self) -> str:
        text = f"nothing arrived for {_PATIENCE_SECONDS:.0f} s"
        if self.service in (Service.UC, Service.UD):
            text += f": {self.service.name} does not send again what the network loses"
        return text

    def close(self) -> None:
        """Closes the adapter and all that was made from it."""
        # Views first: a mapping cannot be unmapped under them.
        for view in (getattr(self, name, None) for name in ("incoming", "outgoing")):
            if view is not None:
                view.release()
        self.device.__exit__(None, None, None)

    def __enter__(self) -> Endpoint:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Closes it; a capture that ended early is an error where nothing else is one."""
        failure = self.device.link_counters["capture_failure"] if error is None else ""
        self.close()
        if failure:
            raise CommandError(failure, FAILED)

"""What a program sees that answers an adapter over ordinary UDP sockets (Annex A17.3.3).

It has one socket, on port 4791, or another one to send from, and no sight of IP headers: it checks
ICRCs as those of packets with identification 0 and DF set, which is what the kernel gives single
datagrams of such sockets.
"""

import socket
import struct
import zlib
from collections.abc import Iterator
from contextlib import closing
from itertools import count

import pytest

import softhca as hca

MTU = 256
PACKETS = 40
QPN = 0x123456
_IP_MTU_DISCOVER, _IP_PMTUDISC_PROBE = 10, 3
_UDP_SEGMENT = 103


class Program:
    """A peer that sends from this port, and acknowledges what it is asked to."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.settimeout(20)
        for low in count(1):
            self.address = f"127.77.{low >> 8}.{low & 255}"
            try:
                self.socket.bind((self.address, 4791))
                break
            except OSError:
                continue  # Somebody else's.
        self.sender = self.socket
        if port != 4791:
            self.sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self.sender.bind((self.address, port))
        self.sender.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _IP_PMTUDISC_PROBE)

    def close(self) -> None:
        self.sender.close()
        self.socket.close()

    def receive(self) -> tuple[bytes, bool]:
        """A packet without its ICRC, and whether that is right."""
        datagram, (address, port) = self.socket.recvfrom(8192)
        transport, icrc = datagram[:-4], datagram[-4:]
        return transport, icrc == icrc_of(address, self.address, port, 4791, transport)

    def send(self, address: str, transport: bytes) -> None:
        self.sender.sendto(self.sealed(address, transport), (address, 4791))

    def send_joined(self, address: str, transports: list[bytes]) -> None:
        """Sends packets of one length as the receiver's kernel joins them (UDP_GRO)."""
        datagrams = [self.sealed(address, transport) for transport in transports]
        size = struct.pack("=H", len(datagrams[0]))
        fields = [(socket.IPPROTO_UDP, _UDP_SEGMENT, size)]
        self.sender.sendmsg(datagrams, fields, 0, (address, 4791))

    def sealed(self, address: str, transport: bytes) -> bytes:
        return transport + icrc_of(self.address, address, self.port, 4791, transport)


def icrc_of(source: str, destination: str, source_port: int, port: int, transport: bytes) -> bytes:
    length = 8 + len(transport) + 4
    ip = struct.pack(">BBHHHBBH", 0x45, 0xFF, 20 + length, 0, 0x4000, 0xFF, 17, 0xFFFF)
    addresses = socket.inet_aton(source) + socket.inet_aton(destination)
    udp = struct.pack(">HHHH", source_port, port, length, 0xFFFF)
    masked = transport[:4] + b"\xff" + transport[5:]
    return struct.pack("<I", zlib.crc32(b"\xff" * 8 + ip + addresses + udp + masked))


class Connection:
    """A queue pair of an adapter, connected to a program."""

    def __init__(self, device: hca.Device, program: Program) -> None:
        self.program = program
        self.address = str(device.gid.ip)
        self.pd, self.cq = device.alloc_pd(), device.create_cq(16)
        self.qp = self.pd.create_qp(hca.QPType.RC, send_cq=self.cq, recv_cq=self.cq, max_send_wr=16)
        info = hca.QPInfo(gid=hca.GID(program.address), qpn=QPN, psn=0, mtu=hca.Mtu.MTU_256)
        self.qp.connect(info)
        rights = hca.Access.LOCAL_WRITE | hca.Access.REMOTE_READ
        self.mr = self.pd.reg_mr(bytearray(range(256)) * PACKETS, rights)

    def write(self, first: int) -> None:
        """Writes the region in packets from PSN `first`, and demands right ICRCs."""
        far = hca.RemoteMemory(0x1000, 0x100, len(self.mr))
        self.qp.post_send(hca.Write(self.mr, remote=far, signaled=True))
        due = {(first + packet) & 0xFFFFFF for packet in range(PACKETS)}
        while due:
            transport, right = self.program.receive()
            assert right
            psn = int.from_bytes(transport[9:12], "big")
            due.discard(psn)
            if transport[8] & 0x80:
                self.acknowledge(psn)
        while not (completions := self.cq.poll()):
            pass
        completions[0].raise_for_status()

    def acknowledge(self, psn: int) -> None:
        head = struct.pack(">BBHII", 0x11, 0x40, 0xFFFF, self.qp.qpn, psn)
        self.program.send(self.address, head + struct.pack(">I", 0x1F << 24))

    def request(self, psn: int, length: int) -> bytes:
        head = struct.pack(">BBHII", 0x0C, 0x40, 0xFFFF, self.qp.qpn, psn)
        return head + struct.pack(">QII", self.mr.addr, self.mr.rkey, length)

    def ask(self, psn: int, length: int) -> None:
        self.program.send(self.address, self.request(psn, length))

    def answers(self, psns: range) -> None:
        """Demands answers with these PSNs and right ICRCs."""
        for psn in psns:
            transport, right = self.program.receive()
            assert right
            assert int.from_bytes(transport[9:12], "big") == psn


@pytest.fixture(params=(4791, 0xC000, 50_000))
def connection(request: pytest.FixtureRequest) -> Iterator[Connection]:
    program = Program(request.param)
    with hca.open(link="udp") as device:
        yield Connection(device, program)
    program.close()


def test_7_8_1_every_packet_of_a_write_has_the_icrc_of_identification_0(connection):
    for message in range(2):
        connection.write(connection.qp.psn + message * PACKETS)


def test_7_8_1_every_packet_of_a_read_response_has_the_icrc_of_identification_0(connection):
    connection.ask(0, len(connection.mr))
    connection.answers(range(PACKETS))


def test_7_8_1_answers_that_leave_together_have_it_too(connection):
    for begin in range(0, PACKETS, 8):
        for psn in range(begin, begin + 8):
            connection.ask(psn, 8)
        connection.answers(range(begin, begin + 8))


@pytest.mark.parametrize("level", ["strict", "solve"])
def test_7_8_1_what_the_kernel_has_joined_left_with_identification_0_all_the_same(level):
    with closing(Program(0xC000)) as program, hca.open(link="udp", icrc=level) as device:
        connection = Connection(device, program)
        requests = [connection.request(psn, 8) for psn in range(8)]
        program.send_joined(connection.address, requests)
        connection.answers(range(8))
        assert device.counters["rx_icrc_encapsulated"] == 0
        assert device.counters["rx_icrc_solved"] == 0  # Nothing had to be found out.

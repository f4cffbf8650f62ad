"""Gives an opened device commands that are nearly right: `command_fuzz.py SEED COUNT`.

Lengths, handles, pointers and fields are changed at random in commands of both forms. Children do
it, since an answer that is written to a wrong place harms the program, as it should. Each answer
must be success or an errno; the device must do right commands as before, and the memory of a
bystander is as it was. Exits with 1 where that does not hold.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import random
import sys

from softhca.uabi import structures as s
from softhca.uabi.commands.forms import Const, Created, Flags, Handle, In, Octets, Out
from softhca.uabi.commands.table import COMMANDS
from softhca.uabi.layout import Layout

DEVICE = "/dev/infiniband/uverbs0"
RDMA_VERBS_IOCTL = 0xC0181B01
EXTENDED = 1 << 31
DRIVER_RXE = 14
PAGE = mmap.PAGESIZE
BATCH = 200
LISTED_EVERY = 8
SAID_EVERY = 500

# What may be said to a command that is wrong; anything else is a mistake of ours.
SAID = {
    errno.EINVAL,
    errno.EFAULT,
    errno.ENOSPC,
    errno.ENOENT,
    errno.EBUSY,
    errno.EBADF,
    errno.ENOMEM,
    errno.ENODATA,
    errno.EOPNOTSUPP,
    errno.EPROTONOSUPPORT,
    errno.EACCES,
    errno.EMFILE,
    errno.EADDRNOTAVAIL,
    errno.ENETUNREACH,
}


class Arena:
    """Memory for structures and answers, and pointers to where there is none."""

    def __init__(self) -> None:
        self._pages = mmap.mmap(-1, 65 * PAGE)
        self.start = ctypes.addressof(ctypes.c_char.from_buffer(self._pages))
        self._read_only = mmap.mmap(-1, PAGE)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._read_only))
        libc = ctypes.CDLL(None, use_errno=True)
        # A page of ours: the heap of a program may be at any low address that one could think of.
        self.nowhere = self.start + 64 * PAGE
        for page, rights in ((address, mmap.PROT_READ), (self.nowhere, 0)):
            libc.mprotect(ctypes.c_void_p(page), ctypes.c_size_t(PAGE), rights)
        self.bad = [0, 1, address, 1 << 47, (1 << 64) - 8, self.nowhere - 3, self.nowhere]

    def put(self, at: int, octets: bytes) -> int:
        """Copies to the arena; returns the address."""
        self._pages[at : at + len(octets)] = octets
        return self.start + at


class Fuzzer:
    """One stream of commands to one opened device."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.arena = Arena()
        self.device = os.open(DEVICE, os.O_RDWR | os.O_CLOEXEC)
        self.writes = [form for command in COMMANDS for form in command.writes]
        self.methods = [command.method for command in COMMANDS if command.method is not None]
        self.last = ""
        self.prepare()

    def prepare(self) -> None:
        """Makes an object of each kind, so that there is something to get wrong."""
        answer = self.arena.start + 40 * PAGE
        memory = self.arena.start + 48 * PAGE
        queues = {"pd_handle": 0, "send_cq_handle": 1, "recv_cq_handle": 1, "max_send_wr": 8}
        sizes = {"max_recv_wr": 8, "max_send_sge": 2, "max_recv_sge": 2}
        region = {"start": memory, "hca_va": memory, "length": PAGE, "access_flags": 0xF}
        for number, layout, fields in (
            (0, s.GET_CONTEXT, {}),
            (3, s.ALLOC_PD, {}),
            (18, s.CREATE_CQ, {"cqe": 16, "comp_channel": -1, "user_handle": 1}),
            (32, s.CREATE_SRQ, {"max_wr": 8, "max_sge": 2, "user_handle": 2}),
            (24, s.CREATE_QP, {**queues, **sizes, "qp_type": 2, "user_handle": 3}),
            (24, s.CREATE_QP, {**queues, **sizes, "qp_type": 4, "user_handle": 4}),
            (9, s.REG_MR, {**region, "pd_handle": 0}),
        ):
            body = layout.pack({"response": answer, **fields})
            header = s.WRITE_HEADER.pack(
                {"command": number, "in_words": (8 + len(body)) // 4, "out_words": 64}
            )
            os.write(self.device, header + body)

    def value(self, name: str) -> int:
        """What a field might be."""
        choose = self.random
        if name in ("response", "start", "hca_va", "mmap_info_addr", "user_handle"):
            return self.pointer()
        if name.endswith(("handle", "channel", "fd")):
            if choose.random() < 0.7:
                kinds = {"pd": 0, "cq": 1, "sr": 2, "qp": 3, "mr": 5, "se": 1, "re": 1}
                return kinds.get(name[:2], choose.randrange(8))
            return choose.choice([0, 1, 2, 3, 4, choose.randrange(12), 0xFFFFFFFF])
        if name in ("length", "cqe", "max_wr", "max_send_wr", "max_recv_wr", "max_send_sge"):
            return choose.choice([0, 1, 2, 16, 4096, choose.getrandbits(31)])
        if name in ("port_num", "is_global", "qp_type", "mw_type"):
            return choose.choice([1, 1, 2, 2, 4, choose.getrandbits(8)])
        if name in ("comp_mask", "flags", "zero", "create_flags", "comp_vector", "source_qpn"):
            return choose.choice([0, 0, 0, choose.getrandbits(16)])
        if name == "attr_mask":
            return choose.choice([1, 0x39, choose.getrandbits(21), choose.getrandbits(32)])
        return choose.choice([0, 1, 2, 3, choose.getrandbits(8)])

    def pointer(self) -> int:
        """Mostly a good one."""
        if self.random.random() < 0.2:
            return self.random.choice(self.arena.bad)
        return self.arena.start + 32 * PAGE + 8 * self.random.randrange(64)

    def structure(self, layout: Layout) -> bytes:
        """Bytes of a request, some of them changed."""
        fields = {}
        for name, nested, unset in layout._fields:
            if nested is not None:
                fields[name] = nested.unpack(self.structure(nested))
            elif isinstance(unset, bytes):
                fields[name] = self.random.randbytes(16) if self.random.random() < 0.5 else b""
            else:
                fields[name] = self.value(name) & 0x7F
                if layout._struct.size and name in ("response", "start", "hca_va", "length"):
                    fields[name] = self.value(name)
                elif name.startswith(("max_", "cqe", "user", "attr_mask")) or name[-6:] == "handle":
                    fields[name] = self.fitting(layout, name)
        octets = bytearray(layout.pack(fields))
        while octets and self.random.random() < 0.2:
            octets[self.random.randrange(len(octets))] ^= 1 << self.random.randrange(8)
        return bytes(octets)

    def fitting(self, layout: Layout, name: str) -> int:
        """A value that the field has room for."""
        value = self.value(name)
        try:
            layout.pack({name: value})
        except Exception:
            return value & 0x7F
        return value

    def off_by(self, number: int) -> int:
        """Now and then another number of the same size."""
        if self.random.random() < 0.15:
            return max(0, number + self.random.choice([-1, 1, -number, 3, 1000]))
        return number

    def write(self) -> None:
        """Writes a command."""
        form = self.random.choice(self.writes)
        self.last = f"write {form.number}{' extended' if form.extended else ''}"
        body = self.structure(form.request)
        room = form.response.size
        if form.extended:
            body += b"\0" * (-len(body) % 8)
            header = s.WRITE_HEADER.pack(
                {
                    "command": form.number | EXTENDED,
                    "in_words": self.off_by(len(body) // 8) & 0xFFFF,
                    "out_words": self.off_by(-(-room // 8)) & 0xFFFF,
                }
            ) + s.EXTENDED_HEADER.pack({"response": self.pointer() if room else 0})
        else:
            header = s.WRITE_HEADER.pack(
                {
                    "command": self.off_by(form.number),
                    "in_words": self.off_by((len(body) + 8) // 4) & 0xFFFF,
                    "out_words": self.off_by(-(-(room + 48) // 4)) & 0xFFFF,
                }
            )
        os.write(self.device, (header + body)[: self.off_by(len(header) + len(body)) or None])

    def ioctl(self) -> None:
        """Gives a command as a list of attributes."""
        if self.random.random() < 0.5:
            attributes, key = self.invoke_write(), (0, 0)
        else:
            method = self.random.choice(self.methods)
            key = (method.object_id, method.method_id)
            self.last = f"method {key[0]},{key[1]}"
            attributes = [self.attribute(one) for one in method.attributes]
            if attributes and self.random.random() < 0.1:
                attributes.pop(self.random.randrange(len(attributes)))
        packed = b"".join(map(s.IOCTL_ATTRIBUTE.pack, attributes))
        header = s.IOCTL_HEADER.pack(
            {
                "length": self.off_by(24 + len(packed)) & 0xFFFF,
                "object_id": self.off_by(key[0]),
                "method_id": self.off_by(key[1]),
                "num_attrs": self.off_by(len(attributes)) & 0xFFFF,
                "driver_id": DRIVER_RXE,
            }
        )
        fcntl.ioctl(self.device, RDMA_VERBS_IOCTL, bytearray((header + packed).ljust(1024, b"\0")))

    def invoke_write(self) -> list[dict[str, int]]:
        """The attributes of a command of write(2)."""
        form = self.random.choice(self.writes)
        self.last = f"invoke {form.number}{' extended' if form.extended else ''}"
        body = self.structure(form.request)
        number = form.number | (EXTENDED if form.extended else 0)
        attributes = [
            {"id": 0, "length": self.off_by(len(body)) & 0xFFFF, "value": self.arena.put(0, body)},
            {"id": 2, "length": 8, "value": number},
            {"id": 0x1001, "length": self.off_by(48), "value": self.pointer()},
        ]
        if form.response.size:
            room = self.off_by(form.response.size) & 0xFFFF
            attributes.append({"id": 1, "length": room, "value": self.pointer()})
        return attributes

    def attribute(self, kind: object) -> dict[str, int]:
        """An attribute of a method."""
        match kind:
            case In(layout=Layout() as layout):
                body = self.structure(layout)
                if len(body) > 8:
                    value = self.arena.put(8192, body)
                else:
                    value = int.from_bytes(body, "little")
                fields = {"length": self.off_by(len(body)), "value": value}
            case In() | Const() | Flags():
                fields = {"length": self.off_by(kind.bytes), "value": self.value(kind.name)}
            case Octets():
                fields = {"length": self.off_by(kind.least or 16), "value": self.pointer()}
            case Out():
                fields = {"length": self.off_by(kind.required or 512), "value": self.pointer()}
            case Handle() | Created():
                fields = {"length": self.off_by(0), "value": self.value("handle")}
            case _:
                fields = {"length": 0, "value": self.value("fd")}
        return {"id": self.off_by(kind.number), **fields}  # type: ignore[attr-defined]

    def run(self, count: int) -> None:
        """Gives commands; each must be answered as it may be."""
        before = set(os.listdir("/proc/self/fd"))
        for number in range(count):
            try:
                if self.random.random() < 0.5:
                    self.write()
                else:
                    self.ioctl()
            except OSError as error:
                assert error.errno in SAID, error
            # The supervisor is asked about the listing too, which costs as much as a command.
            if number % LISTED_EVERY:
                continue
            for name in set(os.listdir("/proc/self/fd")) - before:
                if self.random.random() < 0.8:
                    with contextlib.suppress(OSError):
                        os.close(int(name))


def right_commands() -> None:
    """A device that is well answers these."""
    device = os.open(DEVICE, os.O_RDWR | os.O_CLOEXEC)
    answer = ctypes.create_string_buffer(512)
    address = ctypes.addressof(answer)
    for number, words in ((0, 2), (1, 44), (3, 1)):
        header = s.WRITE_HEADER.pack({"command": number, "in_words": 4, "out_words": words})
        os.write(device, header + address.to_bytes(8, "little"))
    os.close(device)


def main() -> None:
    """Runs children until enough commands were given."""
    seed, count = int(sys.argv[1]), int(sys.argv[2])
    print(f"seed {seed}, {count} commands")
    harmed = 0
    witness = random.Random(seed).randbytes(1 << 22)
    bystander = mmap.mmap(-1, len(witness), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    bystander[:] = witness
    for batch in range(-(-count // BATCH)):
        child = os.fork()
        if child == 0:
            Fuzzer(seed * 1_000_003 + batch).run(BATCH)
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        # What a signal ended wrote over its own memory; an exception is a wrong answer.
        assert status <= 0, f"batch {batch}: see above"
        harmed += status < 0
        right_commands()
        if (batch + 1) % SAID_EVERY == 0:
            print(f"{(batch + 1) * BATCH} commands", flush=True)
    assert bystander[:] == witness, "another process's memory was touched"
    print(f"done, {harmed} children harmed themselves")


if __name__ == "__main__":
    main()

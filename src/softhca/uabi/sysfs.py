"""What Linux shows of RDMA devices in /sys and /dev, as a tree of files.

Programs get descriptors of real files and directories, so that reading and listing are the kernel's
business. Files are read-only, as far as their owner is concerned. Everybody may read them, as in
sysfs, whatever umask(2) says here: programs may become another user.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path

from softhca.uabi.files import is_open_elsewhere
from softhca.uabi.places import directory_for_files
from softhca.uabi.shared_device import SharedDevice
from softhca.uabi.spare import keep_one, room_for_one
from softhca.verbs.enums import PortState

# Directories whose files show what is true when they are opened.
LIVE_DIRECTORIES = ("hw_counters", "counters")

# How old a counter may be that is read of a file that was opened long ago; Linux calls it so too.
COUNTER_LIFESPAN_MS = 10

DEVICES = "/sys/class/infiniband"

# What a tree stands for, and the directory of it that stands there.
SHOWN = {
    DEVICES: "infiniband",
    "/sys/class/infiniband_verbs": "infiniband_verbs",
    "/dev/infiniband": "nodes",
}

# Counters of Linux's rxe by what they are the sum of here. We put no acknowledgement off. Others
# that it has are called the same, but for rdma_sends, which is not counted.
_RXE_COUNTERS: dict[str, tuple[str, ...]] = {
    "ack_deferred": (),
    "completer_retry_err": ("packet_seq_err", "implied_nak_seq_err", "local_ack_timeout_err"),
    "out_of_seq_request": ("out_of_sequence",),
    "rcvd_seq_err": ("packet_seq_err",),
    "rdma_recvs": ("rx_send_requests",),
    "retry_rnr_exceeded_err": ("rnr_nak_retry_err",),
    "send_err": ("port_down_drops",),
}

ABI_VERSION = 6
PROVIDER_ABI_VERSION = 2

# Of a port, in the words of sysfs.
_RATE = "10 Gb/sec (4X SDR)"
_PHYS_STATE = {PortState.ACTIVE: "5: LinkUp", PortState.DOWN: "3: Disabled"}


def guid(value: int) -> str:
    """A GUID as sysfs writes it."""
    return ":".join(f"{value >> shift & 0xFFFF:04x}" for shift in (48, 32, 16, 0))


def gid_text(raw: bytes) -> str:
    """A GID as sysfs writes it: all of its digits."""
    return ":".join(raw[at : at + 2].hex() for at in range(0, 16, 2))


# A tree's directory, which its supervisor holds a lock of.
_PREFIX = "softhca-sysfs-"

_NODE = "uverbs"


def _lock(top: Path) -> int | None:
    """Locks a tree for as long as the descriptor is open; None, if somebody else has it.

    A tree that nobody has is a killed supervisor's, or so new that it looks like one. What clears
    up directories of temporary files by their age, as systemd-tmpfiles does, heeds the lock too.
    """
    with suppress(FileNotFoundError, BlockingIOError), ExitStack() as stack:
        lock = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
        stack.callback(os.close, lock)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(lock), top.lstat()):
            stack.pop_all()
            return lock
    return None


def _remove_stale(places: Path) -> None:
    """Removes trees of supervisors that were killed before they had a guardian."""
    for top in places.glob(f"{_PREFIX}*"):
        # Those that go or come just now are left alone, and so is what other users call so, as
        # anybody may in a directory of temporary files: it could be of any size and depth.
        with suppress(OSError):
            lock = _lock(top) if top.lstat().st_uid == os.geteuid() else None
            if lock is None:
                continue
            try:
                with suppress(RecursionError):
                    shutil.rmtree(top, ignore_errors=True)
            finally:
                os.close(lock)


def _make_locked(place: Path) -> tuple[Path, int]:
    """Makes a tree's directory, and locks it."""
    while True:
        top = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))
        lock = _lock(top)
        if lock is not None:
            return top, lock
        # Another supervisor that starts just now took it for stale, and removes it.


class SysfsTree:
    """The generated tree.

    Attributes:
        top: Its directory.
    """

    def __init__(self) -> None:
        keep_one()
        place = directory_for_files()
        _remove_stale(place)
        self.top, self._lock = _make_locked(place)
        for directory in SHOWN.values():
            self._make_directory(self.top / directory)
        self._put("infiniband_verbs/abi_version", str(ABI_VERSION))
        self._counted: dict[str, str] = {}  # What files of counters say, by their path.

    def remove(self) -> None:
        """Removes the tree; descriptors of it that programs have stay good."""
        shutil.rmtree(self.top, ignore_errors=True)
        os.close(self._lock)

    def make_nodes(self, count: int) -> list[int]:
        """Makes a directory for each device file; returns their numbers as libraries find them.

        Libraries take devices in the order in which the file system lists these directories. That
        may be any, and depends on names: the device that shall be found first gets the first.
        """
        place = self.top / "infiniband_verbs"
        for index in range(count):
            self._make_directory(place / f"{_NODE}{index}")
        return [
            int(name.removeprefix(_NODE)) for name in os.listdir(place) if name.startswith(_NODE)
        ]

    def _make_directory(self, place: Path) -> None:
        """Makes a directory below the top, and those that it lies in."""
        if not place.is_dir():
            self._make_directory(place.parent)
            place.mkdir()
            place.chmod(0o755)

    def _put(self, path: str, text: str) -> None:
        with room_for_one():
            self._write(path, text)

    def _write(self, path: str, text: str) -> None:
        file = self.top / path
        self._make_directory(file.parent)
        # In place: the directory's time of change says to libraries that the device is another one.
        # Who reads meanwhile never finds nothing; a shorter text ends for a moment as before.
        octets = f"{text}\n".encode()
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.fchmod(descriptor, 0o644)
            os.pwrite(descriptor, octets, 0)
            os.ftruncate(descriptor, len(octets))
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(file)) from None
        finally:
            os.close(descriptor)

    def _put_node(self, path: str) -> None:
        """Puts what is listed as a device file; to open this very one is ENXIO."""
        # Of device 0, which is none, anybody may make one; but not in overlayfs.
        for kind in (stat.S_IFCHR, stat.S_IFSOCK):
            with suppress(PermissionError):
                os.mknod(self.top / path, kind | 0o666, os.makedev(0, 0))
                (self.top / path).chmod(0o666)
                return

    def add(self, device: SharedDevice) -> None:
        """Shows a device."""
        self._put_node(f"nodes/{device.node}")
        node = f"infiniband_verbs/{device.node}"
        major, minor = device.number >> 8, device.number & 0xFF
        self._put(f"{node}/ibdev", device.name)
        self._put(f"{node}/dev", f"{major}:{minor}")
        self._put(f"{node}/abi_version", str(PROVIDER_ABI_VERSION))
        attr = device.adapter.query_device()
        here = f"infiniband/{device.name}"
        self._put(f"{here}/node_type", "1: CA")
        self._put(f"{here}/node_guid", guid(attr.node_guid))
        self._put(f"{here}/sys_image_guid", guid(attr.sys_image_guid))
        self._put(f"{here}/node_desc", device.name)
        self._put(f"{here}/fw_ver", attr.fw_ver)
        self._put(f"{here}/hw_rev", f"{attr.hw_ver:#x}")
        self._put(f"{here}/parent", device.interface)
        self.refresh_port(device)
        self.refresh_counters(device)

    def refresh_port(self, device: SharedDevice) -> None:
        """Brings up to date what is shown of the port: its state and its GIDs."""
        port = device.adapter.query_port()
        here = f"infiniband/{device.name}/ports/1"
        self._put(f"{here}/state", f"{port.state.value}: {port.state.name}")
        self._put(f"{here}/phys_state", _PHYS_STATE.get(port.state, "2: Polling"))
        self._put(f"{here}/link_layer", port.link_layer)
        self._put(f"{here}/rate", _RATE)
        self._put(f"{here}/cap_mask", "0x00010000")
        for name in ("lid", "sm_lid"):
            self._put(f"{here}/{name}", "0x0")
        for name in ("lid_mask_count", "sm_sl"):
            self._put(f"{here}/{name}", "0")
        used = dict(device.used_gids())
        for index in range(port.gid_tbl_len):
            raw = used.get(index)
            self._put(f"{here}/gids/{index}", gid_text(raw or bytes(16)))
            if raw is not None:
                self._put(f"{here}/gid_attrs/types/{index}", "RoCE v2")
                self._put(f"{here}/gid_attrs/ndevs/{index}", device.interface)
            else:
                for kind in ("types", "ndevs"):
                    (self.top / here / "gid_attrs" / kind / str(index)).unlink(missing_ok=True)
        for index in range(port.pkey_tbl_len):
            self._put(f"{here}/pkeys/{index}", f"{device.adapter.query_pkey(1, index):#06x}")

    def refresh_counters(self, device: SharedDevice) -> None:
        """Brings the counters up to date."""
        here = f"infiniband/{device.name}/ports/1/hw_counters"
        counters = dict(device.adapter.counters.items())
        for name, parts in _RXE_COUNTERS.items():
            counters[name] = sum(counters[part] for part in parts)
        counters["link_downed"] = device.times_down
        counters["lifespan"] = COUNTER_LIFESPAN_MS
        for name, value in counters.items():
            path, text = f"{here}/{name}", str(value)
            if self._counted.get(path) != text:
                self._put(path, text)
                self._counted[path] = text

    def has_open_counters(self, device: SharedDevice) -> bool:
        """Whether a program keeps a file of a device's counters open."""
        own = f"infiniband/{device.name}/"
        files = (str(self.top / path) for path in self._counted if path.startswith(own))
        return any(is_open_elsewhere(file, fcntl.F_WRLCK) for file in files)

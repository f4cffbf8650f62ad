"""A machine of arm64 out of Debian's packages: their root, a kernel and an initial disk."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
# With the first, a pattern of apt's, all that no package names since every system has it.
PACKAGES = [
    "?essential",
    "procps",
    "mount",
    "kmod",
    "iproute2",
    "passwd",
    "python3",
    "python3-venv",
    "libpython3.11-dev",
    "g++",
    "libc6-dev",
    "ibverbs-utils",
    "ibverbs-providers",
    "rdma-core",
    "python3-pyverbs",
    "perftest",
    "libibverbs-dev",
    "strace",
    "busybox-static",
]
# What tests need beyond Debian's packages, which are older than ours asks for.
WHEELS = (
    "pytest>=8",
    "numpy",
    "scapy>=2.6",
    "hypothesis",
    "trio>=0.25",
    "anyio>=4",
    "nanobind>=3.0,<4",
)
KERNELS = {"4": "linux-image-arm64/bookworm-backports", "16": "linux-image-arm64-16k"}
KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
MIRROR = os.environ.get("SOFTHCA_ARM64_MIRROR", "http://deb.debian.org/debian")
# What the initial disk loads, and what some tests of ours ask for.
BOOT_MODULES = [
    "crc32c_generic",
    "crc32_generic",
    "virtio_blk",
    "ext4",
    "9p",
    "9pnet_virtio",
    "virtio_rng",
]
MORE_MODULES = [
    "veth",
    "dummy",
    "tun",
    "sch_netem",
]
DISK_BYTES = 4 << 30


@dataclass(frozen=True)
class Guest:
    """Files of a machine."""

    root: Path
    disk: Path
    kernel: Path
    initrd: Path


def make_guest(cache: Path, pages: str) -> Guest:
    """Makes what the cache does not have yet."""
    made = cache / f"guest-{pages}"
    guest = Guest(cache / "root", made / "root.img", made / "Image", made / "initrd")
    if guest.initrd.exists():
        return guest
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir(parents=True)
    debs = fetch(cache / f"apt-{pages}", [*PACKAGES, KERNELS[pages]])
    unpack([deb for deb in debs if not deb.name.startswith("linux-image")], guest.root)
    with tempfile.TemporaryDirectory() as scratch:
        kernel = Path(scratch)
        for deb in debs:
            if deb.name.startswith("linux-image"):
                subprocess.run(["dpkg-deb", "-x", deb, kernel], check=True)
        (version,) = (path.name for path in (kernel / "lib/modules").iterdir())
        finish_root(guest.root)
        install_wheels(guest.root / "opt/site")
        make_disk(guest)
        shutil.copy(kernel / f"boot/vmlinuz-{version}", guest.kernel)
        make_initrd(kernel, version, guest)
    return guest


def fetch(state: Path, packages: list[str]) -> list[Path]:
    """Debian packages of arm64 with all that they depend on, by an apt that installs nothing."""
    archives = state / "cache/archives"
    for part in ("lists/partial", "cache/archives/partial"):
        (state / part).mkdir(parents=True, exist_ok=True)
    (state / "status").touch()
    suites = ("bookworm", "bookworm-updates", "bookworm-backports")
    lines = [f"deb [arch=arm64 signed-by={KEYS}] {MIRROR} {suite} main\n" for suite in suites]
    (state / "sources.list").write_text("".join(lines))
    settings = {
        "Dir::State": state,
        "Dir::State::status": state / "status",
        "Dir::State::lists": state / "lists",
        "Dir::Cache": state / "cache",
        "Dir::Etc::sourcelist": state / "sources.list",
        "Dir::Etc::sourceparts": "-",
        "APT::Architecture": "arm64",
        "APT::Architectures": "arm64",
        "APT::Install-Recommends": "false",
        "APT::Sandbox::User": "",
        "Debug::NoLocking": "true",
    }
    apt = ["apt-get", "-qq", *(f"-o{name}={value}" for name, value in settings.items())]
    subprocess.run([*apt, "update"], check=True)
    subprocess.run([*apt, "install", "--download-only", "-y", *packages], check=True)
    return sorted(archives.glob("*.deb"))


def unpack(debs: list[Path], root: Path) -> None:
    """Unpacks without configuring anything, which would have to run on arm64."""
    shutil.rmtree(root, ignore_errors=True)
    for name in ("bin", "sbin", "lib"):
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    for deb in debs:
        files = subprocess.Popen(["dpkg-deb", "--fsys-tarfile", deb], stdout=subprocess.PIPE)
        # Device files, if any, are for root to make.
        tar: list[str | Path] = [
            "tar",
            "--keep-directory-symlink",
            "--exclude=./dev/*",
            "-C",
            root,
            "-xf",
            "-",
        ]
        subprocess.run(tar, stdin=files.stdout, check=True)
        if files.wait() != 0:
            raise SystemExit(f"{deb} cannot be unpacked")


def finish_root(root: Path) -> None:
    """What the packages' scripts would have done, as far as it matters here."""
    for name in ("passwd", "group"):
        shutil.copy(root / f"usr/share/base-passwd/{name}.master", root / f"etc/{name}")
    for name, target in {"awk": "mawk", "cc": "gcc", "c++": "g++"}.items():
        (root / "usr/bin" / name).symlink_to(target)
    (root / "etc/hosts").write_text("127.0.0.1 localhost\n::1 localhost\n")
    for name in ("dev", "proc", "sys", "run", "tmp", "share"):
        (root / name).mkdir(exist_ok=True)
    shutil.copy(HERE / "guest_init", root / "guest_init")
    (root / "guest_init").chmod(0o755)


def install_wheels(site: Path) -> None:
    platforms = [f"--platform=manylinux_2_{glibc}_aarch64" for glibc in (28, 17)]
    pip: list[str | Path] = [sys.executable, "-m", "pip", "install", "-q", "--target", site]
    versions = [*platforms, "--only-binary=:all:", "--python-version=3.11"]
    subprocess.run([*pip, *versions, *WHEELS], check=True)


def make_disk(guest: Guest) -> None:
    with guest.disk.open("wb") as disk:
        disk.truncate(DISK_BYTES)
    options = ["-O", "^has_journal", "-E", "root_owner=0:0,lazy_itable_init=1"]
    subprocess.run(["mkfs.ext4", "-q", *options, "-d", guest.root, guest.disk], check=True)


def make_initrd(kernel: Path, version: str, guest: Guest) -> None:
    """A busybox with the modules, which mounts the disk and hands over to guest_init."""
    with tempfile.TemporaryDirectory() as scratch:
        tree = Path(scratch)
        for name in ("bin", "dev", "proc", "sys", "new"):
            (tree / name).mkdir()
        shutil.copy(guest.root / "bin/busybox", tree / "bin")
        copy_modules(kernel, version, tree)
        (tree / "init").write_text((HERE / "initrd_init").read_text())
        (tree / "init").chmod(0o755)
        names = [str(path.relative_to(tree)) for path in tree.rglob("*")]
        with guest.initrd.open("wb") as initrd:
            subprocess.run(
                ["cpio", "--quiet", "-o", "-H", "newc", "-R", "0:0"],
                cwd=tree,
                input="\n".join(names).encode(),
                stdout=initrd,
                check=True,
            )


def copy_modules(kernel: Path, version: str, tree: Path) -> None:
    subprocess.run(["depmod", "-b", kernel, version], check=True)
    folder = f"lib/modules/{version}"
    wanted: set[str] = set()
    for module in (*BOOT_MODULES, *MORE_MODULES):
        show: list[str | Path] = ["modprobe", "-d", kernel, "-S", version, "--show-depends", module]
        lines = subprocess.run(show, check=True, capture_output=True, text=True).stdout
        wanted |= {line.split()[1] for line in lines.splitlines() if line.startswith("insmod")}
    for path in sorted(wanted):
        place = tree / folder / path.split(f"/{folder}/", 1)[1]
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, place)
        if place.suffix == ".xz":  # busybox cannot load such.
            subprocess.run(["xz", "-d", place], check=True)
    for name in ("modules.builtin", "modules.builtin.modinfo"):
        shutil.copy(kernel / folder / name, tree / folder)
    subprocess.run(["depmod", "-b", tree, version], check=True)

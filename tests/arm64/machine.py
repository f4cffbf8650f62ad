"""The command line of QEMU for a machine, and its run."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from guest import Guest

HERE = Path(__file__).resolve().parent
OPTIONS = {
    "-M": "virt,gic-version=3",
    "-accel": "tcg,thread=multi",
    "-cpu": "max,pauth-impdef=on",
    "-smp": "2",
    "-m": "3072",
    "-display": "none",
    "-nic": "none",
    "-append": "console=ttyAMA0 quiet panic=-1 mitigations=off",
    "-chardev": "stdio,id=out,signal=off",
}
DEVICES = (
    "virtio-blk-pci,drive=disk",
    "virtio-rng-pci",
    "virtio-serial-pci",
    "virtserialport,chardev=out,name=out",
)


def boot(guest: Guest, share: Path, job: str, seconds: int) -> int:
    """Runs a shell's words in the machine; its status is ours."""
    (share / "job").write_text((HERE / "guest_environment").read_text() + job + "\n")
    console = share.parent / "console"
    options: dict[str, str | Path] = {
        **OPTIONS,
        "-kernel": guest.kernel,
        "-initrd": guest.initrd,
        "-drive": f"file={guest.disk},format=raw,if=none,id=disk,snapshot=on",
        "-serial": f"file:{console}",
        "-virtfs": f"local,path={share},mount_tag=share,security_model=none,multidevs=remap",
    }
    words: list[str | Path] = [
        "qemu-system-aarch64",
        "-nodefaults",
        "-no-user-config",
        "-no-reboot",
    ]
    for option, value in options.items():
        words += [option, value]
    for device in DEVICES:
        words += ["-device", device]
    # An input that does not end: at its end QEMU would close the output too.
    reading, writing = os.pipe()
    try:
        subprocess.run(words, stdin=reading, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        print(f"the machine was ended after {seconds} seconds")
    finally:
        os.close(reading)
        os.close(writing)
    status = share / "status"
    if not status.exists():
        print(f"the machine gave no status; its console is in {console}")
        return 125
    return int(status.read_text())

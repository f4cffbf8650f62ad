"""What goes wrong, and how the adapter says so: refusals of a verb, and completions in error."""

from __future__ import annotations

from collections.abc import Callable

import softhca as hca


class Host:
    """An adapter with one queue pair and one region."""

    def __init__(self, access: hca.Access) -> None:
        self.dev = hca.open()
        self.pd = self.dev.alloc_pd()
        self.cq = self.dev.create_cq(16)
        self.qp = self.pd.create_qp(hca.QPType.RC, send_cq=self.cq, recv_cq=self.cq)
        self.mr = self.pd.reg_mr(bytearray(4096), access)


def attempt(what: str, make: Callable[[hca.MR, hca.RemoteMemory], hca.SendRequest]) -> None:
    """Posts one work request on a fresh connection and prints how it ends."""
    asker, owner = Host(hca.Access.LOCAL_WRITE), Host(hca.Access.REMOTE_READ)
    with asker.dev, owner.dev:
        asker.qp.connect(owner.qp.info(), rnr_retry=1)
        owner.qp.connect(asker.qp.info())
        asker.qp.post_send(make(asker.mr, owner.mr.remote()))
        while not (completions := asker.cq.poll(1)):
            pass
        print(f"{what}\n    {completions[0].why}\n    {asker.qp} is now in {asker.qp.state.name}")


def main() -> None:
    """One mistake after the other."""
    attempt(
        "WRITE to a region that gives READ only",
        lambda source, far: hca.Write(source[:64], remote=far[:64]),
    )
    attempt(
        "READ beyond the end of a region",
        lambda source, far: hca.Read(
            source[:64], remote=hca.RemoteMemory(far.addr + 4090, far.rkey, 64)
        ),
    )
    attempt(
        "READ with a key that nobody gave out",
        lambda source, far: hca.Read(source[:64], remote=hca.RemoteMemory(far.addr, 0xBAD, 64)),
    )
    attempt("SEND to a peer that posted no receive", lambda source, far: hca.Send(source[:64]))
    with hca.open() as dev:
        print("a verb with an argument out of range")
        try:
            dev.create_cq(0)
        except hca.VerbsError as error:
            print(f"    {error}")


if __name__ == "__main__":
    main()

"""What systems say otherwise than others to the same verbs, and why: for verbs_compare.py.

Sections are those of IBTA Vol 1.
"""

from __future__ import annotations

from typing import NamedTuple


class Words(NamedTuple):
    """Words in what is said that do not count; the rest of the line and of the case does."""

    pattern: str
    instead: str
    reason: str


class Known(NamedTuple):
    """A difference: what was asked, what is said at the left and at the right, as patterns.

    The rest of the case follows from it and does not count.
    """

    asked: str
    left: str
    right: str
    reason: str


def _sends(status: str) -> str:
    return rf"\[\d+ {status}\]"


def _receives(status: str) -> str:
    return rf"receives( \[[^]]*\])* \[\d+ {status}\]"


# At the left Linux's rxe of 6.1, at the right softhca.
KERNEL_WORDS = (
    Words(r" cur \d", "", "rxe tells as the current state what a program last gave as such"),
    Words(r" draining \d", "", "rxe calls a queue pair draining that has nothing to drain"),
    Words(r" event [23] x\d+", "", "rxe raises no event when a responder refuses a request"),
    Words(r" event 4 x\d+", "", "rxe does not tell of the first packet at a queue pair in RTR"),
    Words(r" event 16 x\d+", "", "rxe does not tell of the last receive of a shared queue"),
    Words(r" (?:rnr_)?retry (?:7|8|ff)\b", "", "rxe takes retry counts of more than three bits"),
    Words(r" rnr (?:0|1f|20|ff)\b", "", "rxe takes RNR timers of more than five bits"),
    Words(r"made .* query", "query", "rxe's ibv_create_qp says what was asked, not what there is"),
)

KERNEL = (
    Known("^create_ah 6 ", "^0$", "^EINVAL$", "no group of IPv6 is reached from an IPv4 address"),
    Known(
        r"^create_qp .* (wr|sge) (0/|\d+/0)",
        r"(wr|sge) (0/|\d+/0)",
        "^0 ",
        "a queue that was to hold nothing has room for one",
    ),
    Known("^create_|^resize_cq", "^0", "^EINVAL", "other limits, as ibv_devinfo -v shows them"),
    Known(
        "^create_srq",
        r"^0 \d+/",
        r"^0 \d+/",
        "rxe says of a shared queue what was asked, not what there is room for",
    ),
    # A limit that creating gave, which does not count there (ibv_create_srq(3)).
    Known(
        "^(modify|post)_srq",
        r" \d+/\d+ limit \d+$",
        r" (\d+)/\d+ limit \1$",
        "no limit is higher than its queue",
    ),
    Known(
        r"^reg_mr access \w*[13579bdf]\w\w ",
        "^EINVAL$",
        "^(0|EFAULT)$",
        "a region may give a right to FLUSH (Annex A19), which rxe of 6.1 does not know",
    ),
    Known("^dereg_mr", "^EINVAL$", "^EBUSY$", "a region with windows is busy (ibv_dereg_mr(3))"),
    Known(
        "local_inv|LOCAL_INV| posts ",
        _sends("local QP operation error"),
        _sends("memory management operation error"),
        "what fails of memory management has a status of its own (11.6.2)",
    ),
    Known(
        "",
        "sends.*" + _sends("local QP operation error"),
        "sends.*" + _sends("local protection error"),
        "a requester's own memory that cannot be reached is a protection error (11.6.2)",
    ),
    Known(
        "bind",
        _sends("success op 5"),
        _sends("memory management operation error"),
        "rxe lets windows leave their region that are zero-based or wrap 2^64 (10.6.7)",
    ),
    Known(
        "WRITE_IMM",
        _receives("remote access error"),
        "",
        "rxe takes the receive of a WRITE before it looks at the key, and that fails too",
    ),
    Known(
        "SEND_INV",
        _receives("remote invalid request error"),
        _receives("remote invalid request error"),
        "rxe acknowledges a SEND whose invalidation fails; nobody may (class J, 9.9.6.3)",
    ),
    Known(
        "",
        _receives("(local QP operation|remote invalid request) error"),
        _receives("local length error"),
        "a receive that is too short is a length error (9.7.4.1.6)",
    ),
    Known(
        "UC|UD|qkey",
        _receives("local QP operation error"),
        "states ./[234]|state 3",
        "what does not fit its receive on UC and UD is dropped in silence (9.8.2, 9.8.3)",
    ),
    Known(
        "UD .*top-qkey",
        "",
        "b receives.* success op 128",
        "a Q_Key with its top bit stands for the queue pair's own, which rxe does not know (3.5.3)",
    ),
    Known(
        "RC WRITE",
        "local protection error.* memory",
        "local protection error.* memory",
        "a WRITE whose later bytes cannot be reached may have been placed in part",
    ),
    Known("CAS|FAA", r"success op [34] len (?!8\b)", "op [34] len 8", "an atomic fetches 8 bytes"),
    Known(
        "UD",
        _sends("success op 0"),
        _sends("local length error"),
        "a datagram is no longer than the path MTU (9.8.3)",
    ),
    Known(
        "UC|UD|qkey| posts ",
        "states? 6",
        "states? 5",
        "a requester's own error takes UC and UD to SQE (10.3.1)",
    ),
    Known(
        "@window 1",
        "success",
        "remote access error",
        "a window of type 2 ends with the connection of its queue pair (o10-2.2.5), or as below",
    ),
    Known(
        "@window 0|^peer",
        "success",
        "remote access error",
        "what a window does not cover cannot be reached; rxe looks at the region alone",
    ),
    Known(
        "",
        "^((?!success|exceeded).)*states? 3",
        "(transport|RNR) retry counter exceeded",
        "rxe does not always time out: some requests of it wait for ever",
    ),
    Known(
        "RC.* WRITE_IMM| posts .*WRITE_IMM",
        "RNR retry counter exceeded",
        "RNR retry counter exceeded",
        "a WRITE that waits for a receive may have been placed in part",
    ),
    Known(
        "UC.* WRITE_IMM| posts .*WRITE_IMM",
        "success op 1.* memory",
        "success op 1.* memory",
        "a WRITE that finds no receive may have been placed in part",
    ),
    Known(
        "^then RC|^again RC",
        _receives("success op 128[^]]*"),
        _receives("local protection error"),
        "softhca wants all of a receive to be in its region, and not only what is written",
    ),
    Known(
        "^peer|^both to 6",
        r"sends \[\d+ Work Request Flushed",
        "(a sends a|b sends b)",
        "rxe flushes requests too whose post it has refused",
    ),
    Known("^modify", "^EINVAL", " alt ", "the kernel has alternate paths on InfiniBand alone"),
    Known(
        " posts ",
        r"Flushed Error\] receives state 6",
        r"receives( \[\d+ Work Request Flushed Error\])+ state 6",
        "receives that are posted in ERR are flushed at the next doorbell, by rxe later",
    ),
    Known("", " event 0 ", " event 0 ", "a queue that overflows ends its queue pairs"),
)

# At the left doorbells that are answered, at the right such as are not.
WRITTEN = (
    Known(
        "",
        "EINVAL posted 0",
        r"0 posted \d",
        "a post before RTS is not refused where nobody answers a doorbell",
    ),
    Known(
        r"bind_mw|^end \d: window 0 ",
        "^EINVAL",
        "^0",
        "so it is with the verb of windows of type 1",
    ),
)

# At the left commands of ioctl(2), at the right such of write(2).
WRITE_ABI = (
    Known(
        "^create_qp type 9 .* srq 1$",
        "^EINVAL$",
        "^EOPNOTSUPP$",
        "the shared queue of an XRC queue pair that only sends is not looked at in write(2)",
    ),
)

# At the left one device that talks to itself, at the right two.
TWO_DEVICES = (
    Known(
        "RC.* (READ|CAS|FAA)",
        "sends.*" + _sends("local protection error") + ".*Flushed",
        "sends.*" + _sends("local protection error") + ".*Flushed",
        "what is posted behind a request that fails with its answer may have reached the peer",
    ),
    Known(
        "RC.* (READ|CAS|FAA)",
        r"sends( \[\d+ success[^]]*\])+ a receives",
        r"sends( \[\d+ success[^]]*\])+ \[\d+ remote invalid request error\].* event 2 x1",
        "a requester that may have more READs and atomics under way than its peer takes (9.4.4)",
    ),
)

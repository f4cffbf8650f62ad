"""What Linux's rxe of 6.1 says otherwise than softhca to the same packets, and why.

At the left rxe, at the right softhca. What was asked is told with its past (packet_compare.py):
` after` and a syndrome where something before was refused; ` repeats` with a PSN that is done;
` anew` where a message of UC began inside another one, and ` broken` where one was not full;
` lost` where an answer said that something was; ` skips` where it acknowledges a READ or atomic
without its answer, or what was not sent; ` wrong` where it is not the answer to a READ that is due.
Sections are those of IBTA Vol 1.
"""

from __future__ import annotations

from verbs_known import Known, Words

WORDS = (Words(" grh", "", "rxe says of every receive that it has a GRH, not only of datagrams"),)

# FIRST or MIDDLE that is not as long as the path MTU.
NOT_FULL = r"_(FIRST|MIDDLE) \S+(?!\S)((?! bytes 256\b)|.* (cut|\w+-pad) \d)"
# WRITE that is not as long as it says.
NOT_AS_LONG = (
    r"WRITE_(LAST|MIDDLE)|_LAST\w* \S+(?!\S)(?! bytes)"
    r"|WRITE_FIRST .* length (\d\d?|1\d\d|2[0-4]\d|25[0-6])\b"
    r"|bytes (\d+) of \S+ length (?!\3\b)|_ONLY\w* \S+ of \S+ length [1-9]|(cut|pad) \d"
)

KNOWN = (
    Known(
        r"cut (1|2|3)\b|more-pad (1|2|3)\b",
        "",
        "^-$",
        "a packet whose length is no multiple of 4 is dropped",
    ),
    Known(
        " silent",
        "",
        r"^RC_ACK \S+ syndrome 1f",
        "a message that asks for no acknowledgement gets one in the end, not from rxe",
    ),
    Known(
        " after 2c",
        r"^RC_ACK \S+ syndrome 60",
        "^-$",
        "behind a request that was put off all is silence: one NAK is enough (9.7.5.1.2)",
    ),
    Known(
        "_INV",
        "syndrome 1f.*REM_INV_REQ_ERR",
        r"^\[\d REM_INV_REQ_ERR",
        "rxe acknowledges a SEND whose invalidation fails; nobody may (class J, 9.9.6.3)",
    ),
    Known(
        "^RC_(READ|CAS|FAA).* repeats",
        "^RC_(RESPONSE|ATOMIC)",
        "^-$",
        "a repeated READ or atomic was asked for before; rxe answers with what it finds there",
    ),
    Known(
        "^RC_READ.* repeats",
        "^-$",
        "^RC_RESPONSE",
        "of a READ that was repeated in part rxe remembers that part alone",
    ),
    Known(
        "^RC_(SEND|WRITE).* repeats",
        r"^RC_ACK \S+ syndrome 1f msn \d+$",
        r"^RC_ACK \S+ syndrome 1f msn \d+$",
        "a duplicate is acknowledged up to the next READ or atomic; rxe takes no heed of them",
    ),
    Known(
        NOT_FULL,
        "",
        "^-$|syndrome 61",
        "all packets of a message but the last are full (9.7.4.1.6); rxe does not look",
    ),
    Known(
        "^RC_(SEND|WRITE)",
        "syndrome 2c",
        "syndrome 6[12]",
        "a request is looked at before there is need of a receive (9.7.4.1)",
    ),
    Known(
        "^(RC|UC)_WRITE_.*_IMM",
        "REM_(INV_REQ|ACCESS)_ERR",
        "^-$|syndrome 6[12]",
        "rxe takes the receive of a WRITE before it looks at the rest, and that fails too",
    ),
    Known(
        "^RC_.*length (2147483649|4294967295)",
        "syndrome 62",
        "syndrome 61",
        "no message is longer than 2^31 bytes, whatever its key (9.7.4.1.6)",
    ),
    Known(
        NOT_AS_LONG,
        r"^-$|all|syndrome (1f|62)|op \d",
        "^-$|syndrome 61",
        "a WRITE is as long as it says; rxe looks at the packet alone, and at its key first",
    ),
    Known(
        r"^(RC|UC)_SEND_(ONLY|LAST).* bytes (25[7-9]|2[6-9]\d|[3-9]\d\d)\b",
        "",
        "^-$|syndrome 61",
        "no packet is longer than the path MTU (9.7.4.1.6); rxe does not look",
    ),
    Known(
        "^RC_",
        r"syndrome 63.*\[\d LOC_QP_OP_ERR\]",
        r"syndrome 61.*\[\d LOC_LEN_ERR\]",
        "a receive that is too short is a length error (9.7.4.1.6)",
    ),
    Known(
        "",
        r"\[\d LOC_QP_OP_ERR\]",
        r"\[\d LOC_PROT_ERR\]",
        "a receive that cannot be written is a protection error (11.6.2)",
    ),
    Known(
        "^U",
        r"\[\d LOC_QP_OP_ERR\]",
        "^-$",
        "what does not fit its receive on UC and UD is dropped in silence (9.8.2, 9.8.3)",
    ),
    Known(
        "^U",
        r"\[\d LOC_QP_OP_ERR\]",
        r"^\[\d LOC_LEN_ERR\]$",
        "a receive of a shared queue that is too short is lost to it (9.9.3, class E)",
    ),
    Known(
        "^RC_(CAS|FAA)",
        "syndrome 62",
        "syndrome 61",
        "an address is aligned before its key is looked at (9.4.5.1)",
    ),
    Known(
        "^(RC_RESYNC|OPCODE)",
        "^-$",
        "syndrome 61",
        "a reserved operation is an invalid request (9.7.4.1.3); rxe drops it",
    ),
    Known(
        " of window",
        "",
        "^-$|syndrome 62",
        "what a window does not cover cannot be reached; rxe looks at the region alone",
    ),
    Known(
        "^UC_.* (anew|broken)",
        "",
        "",
        "what begins inside a message of UC takes its place (9.8.2); rxe drops it",
    ),
    # --- what is made of answers
    Known(
        "^RC_ACK .* skips",
        r"\[\d+ op|ERR",
        "",
        "rxe takes an ACK for the answer to a READ or atomic, and for that to what was not sent",
    ),
    Known(
        "^RC_ACK .*syndrome (40|7f|80|9f)",
        "",
        "^-$|BAD_RESP_ERR",
        "a reserved syndrome is a bad response (9.9.2); rxe takes it for another",
    ),
    Known(
        r"^RC_(RESPONSE_\w+|ATOMIC_ACK) .*syndrome [2-9]",
        "",
        "^-$|BAD_RESP_ERR",
        "what brings an answer acknowledges its request (9.7.5.1); rxe does not look at that",
    ),
    Known(
        "^RC_ATOMIC_ACK",
        r"^\[\d+ op [01]\]",
        "BAD_RESP_ERR",
        "an atomic's answer is no acknowledgement (9.9.2); rxe takes it for one",
    ),
    Known(
        "^RC_ACK .*syndrome 64",
        "REM_OP_ERR",
        "BAD_RESP_ERR",
        "a NAK of an invalid RD request is reserved where there are no datagrams (9.7.5.2.8)",
    ),
    Known(
        "^RC_(ACK|ATOMIC_ACK) .*(bytes|pad)",
        "",
        "^-$",
        "an acknowledgement with a payload is none",
    ),
    Known(
        "^RC_(RESPONSE|ATOMIC_ACK).* lost",
        r"^(-|\[\d+ op \d\])",
        "RETRY_EXC_ERR",
        "an answer that skips another has it asked for again, which counts (9.9.2); rxe waits",
    ),
    Known(
        "^RC_RESPONSE.* wrong",
        "",
        "BAD_RESP_ERR",
        "what is no right answer ends a READ (9.9.2); rxe takes some, and fails otherwise",
    ),
    Known(
        "^RC_ACK .* lost",
        "^-$",
        "ERR",
        "rxe took an acknowledgement before this one that was none",
    ),
    Known(
        "^RC_RESPONSE_FIRST .* lost",
        r"op [234]\b",
        "^all",
        "a READ that was asked for again from its middle may be answered from there",
    ),
    Known(
        "^RC_RESPONSE.* lost",
        "^-$",
        "all",
        "rxe forgets its place in a READ when an ACK skips it",
    ),
    Known(
        "^RC_(RESPONSE|ATOMIC)",
        r"^(?!.*op [234]\b.*all)",
        "^-$",
        "what answers no READ or atomic is ignored",
    ),
    Known(
        "^ask .* lost",
        "^RC_",
        "^(RC_|-)",
        "after a loss softhca has less under way",
    ),
)

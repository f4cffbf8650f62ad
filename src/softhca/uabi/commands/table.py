"""Every command that there is, in both of its forms."""

from __future__ import annotations

from softhca.uabi import structures as s
from softhca.uabi.commands import channels, device, pd
from softhca.uabi.commands.forms import Command, Created, Handle, In, Method, Out, Write
from softhca.uabi.commands.ioctl_form import MethodTable
from softhca.uabi.commands.write_form import EXTENDED, WriteTable

# Objects of ioctl(2): enum uverbs_default_objects.
DEVICE, PD, COMP_CHANNEL, CQ, QP, SRQ, AH, MR, MW = range(9)
XRCD = 10
ASYNC_EVENT = 16

# The smaller structures that the first kernels with a command had.
_FIRST_EX_QUERY_DEVICE_RESP = 184  # Up to response_length.

COMMANDS = (
    Command(device.get_context_and_events, (Write(0, s.GET_CONTEXT, s.GET_CONTEXT_RESP),)),
    Command(
        device.get_context,
        method=Method(
            DEVICE,
            3,
            (
                Out(0, "num_comp_vectors", optional=True),
                Out(1, "core_support", bytes=8, optional=True),
            ),
        ),
    ),
    Command(
        device.query_context,
        method=Method(
            DEVICE,
            4,
            (
                Out(0, "num_comp_vectors", optional=True),
                Out(1, "core_support", bytes=8, optional=True),
            ),
        ),
    ),
    Command(device.alloc_async_events, method=Method(ASYNC_EVENT, 0, (Created(0, "fd"),))),
    Command(device.query_device, (Write(1, s.QUERY_DEVICE, s.QUERY_DEVICE_RESP),)),
    Command(
        device.ex_query_device,
        (
            Write(
                1,
                s.EX_QUERY_DEVICE,
                s.EX_QUERY_DEVICE_RESP,
                extended=True,
                promised=_FIRST_EX_QUERY_DEVICE_RESP,
            ),
        ),
    ),
    Command(device.query_port, (Write(2, s.QUERY_PORT, s.QUERY_PORT_RESP),)),
    Command(
        device.query_port_and_more,
        method=Method(
            DEVICE,
            2,
            (In(0, "port_num", bytes=1), Out(1, "legacy", s.QUERY_PORT_RESP_EX, least=40)),
        ),
    ),
    Command(
        device.query_gid_table,
        method=Method(
            DEVICE,
            5,
            (
                In(0, "entry_size", bytes=8),
                In(1, "flags"),
                Out(2, "entries", bytes=None),
                Out(3, "count", bytes=8),
            ),
        ),
    ),
    Command(
        device.query_gid_entry,
        method=Method(
            DEVICE,
            6,
            (
                In(0, "port_num"),
                In(1, "gid_index"),
                In(2, "flags"),
                Out(3, "entry", s.GID_ENTRY),
            ),
        ),
    ),
    Command(pd.alloc_pd, (Write(3, s.ALLOC_PD, s.ALLOC_PD_RESP),)),
    Command(
        pd.dealloc_pd,
        (Write(4, s.DEALLOC_PD),),
        Method(PD, 0, (Handle(0, "pd_handle"),)),
    ),
    Command(
        channels.create_comp_channel,
        (Write(17, s.CREATE_COMP_CHANNEL, s.CREATE_COMP_CHANNEL_RESP),),
    ),
)

WRITES: WriteTable = {
    form.number | (EXTENDED if form.extended else 0): (command.handler, form)
    for command in COMMANDS
    for form in command.writes
}

METHODS: MethodTable = {
    (command.method.object_id, command.method.method_id): (command.handler, command.method)
    for command in COMMANDS
    if command.method is not None
}

# What a program may ask for before it has its context.
BEFORE_THE_CONTEXT = frozenset({device.get_context_and_events, device.get_context})

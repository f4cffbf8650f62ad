"""Posting by command: a doorbell, since the requests lie in the queue that the program has mapped.

Doorbells of the provider's form never come here: a native thread answers them.
"""

from __future__ import annotations

import errno
from typing import Any

from softhca.uabi.commands.call import Call, refused
from softhca.uabi.commands.qp import OwnedQP
from softhca.uabi.layout import Fields

_SGE_BYTES = 16
_LEAST_REQUEST = 56  # struct ib_uverbs_send_wr.
# What the kernel allocates at once.
_LONGEST = 1 << 22


def post_send(call: Call, request: Fields) -> dict[str, Any]:
    """Rings. Requests that are passed besides are looked at no further than whether they are there.

    Raises:
        OSError: ENOSPC, for fewer bytes than they take; EOPNOTSUPP, for more; EINVAL, for a queue
            pair that cannot send.
    """
    requests = request.wqe_size * request.wr_count & 0xFFFFFFFF
    size = requests + request.sge_count * _SGE_BYTES
    if size > call.rest_length:
        raise refused(errno.ENOSPC, "requests without room")
    call.demand_zero(call.rest_at + size, call.rest_length - size)
    if request.wqe_size < _LEAST_REQUEST:
        raise refused(errno.EINVAL, f"wqe_size {request.wqe_size}")
    if request.wqe_size > _LONGEST:
        raise refused(errno.ENOMEM, f"wqe_size {request.wqe_size}")
    owned = call.context.objects.get(request.qp_handle, OwnedQP)
    call.context.device.hca.ring_doorbell(owned.qp.qpn)
    return {}

"""Protection domains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from softhca.uabi.commands.call import Call
from softhca.uabi.layout import Fields
from softhca.verbs.pd import PD


@dataclass
class OwnedPD:
    """A protection domain of a program."""

    pd: PD

    def destroy(self) -> dict[str, int]:
        """EBUSY, while something is made of it."""
        self.pd.close()
        return {}


def alloc_pd(call: Call, request: Fields) -> dict[str, Any]:
    """Allocates one."""
    return {"pd_handle": call.own(OwnedPD(call.context.device.adapter.alloc_pd()))}


def dealloc_pd(call: Call, request: Fields) -> dict[str, Any]:
    """Gives it back."""
    return call.context.objects.destroy(request.pd_handle, OwnedPD)

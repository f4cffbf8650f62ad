"""Address handles: where datagrams go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from softhca.verbs.attributes import AHAttr
from softhca.verbs.gid import GIDLike, refused_as
from softhca.verbs.lifetime import VerbsObject

if TYPE_CHECKING:
    from softhca.verbs.pd import PD


class AH(VerbsObject):
    """An address handle (struct ibv_ah). `pd.create_ah()` makes it."""

    __slots__ = ("handle",)

    kind = "ah"

    def __init__(self, pd: PD, destination: AHAttr | GIDLike) -> None:
        hca = pd._hca
        self.handle: int
        if isinstance(destination, AHAttr):
            self.handle = hca.create_ah(pd.handle, destination.to_native())
        else:
            with refused_as("destination", destination):
                attr = AHAttr(dgid=destination)
                self.handle = hca.create_ah(pd.handle, attr.to_native())
        super().__init__(hca, pd)

    def _destroy(self) -> None:
        self._hca.destroy_ah(self.handle)

    def query(self) -> AHAttr:
        """Returns the attributes it was made with, the default hop limit filled in."""
        return AHAttr.from_native(self._hca.query_ah(self.handle))

    def __repr__(self) -> str:
        return f"<AH {self.handle}>"

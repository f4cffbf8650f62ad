"""help() of a work request says what can be given to it, and not what the native class takes."""

from __future__ import annotations

import inspect
import pydoc

import pytest

import softhca
from softhca.verbs import wr, wr_memory

KINDS = {
    one.__name__: one
    for name in softhca.__all__
    if inspect.isclass(one := getattr(softhca, name))
    and issubclass(one, softhca.SendRequest | softhca.Recv)
}


def options_of(kind: type) -> set[str]:
    """What the last argument stands for, of which a signature shows the name of the type alone."""
    *_, last = inspect.signature(kind).parameters.values()
    if last.kind is not last.VAR_KEYWORD:
        return set()
    name = last.annotation.removeprefix("Unpack[").removesuffix("]")
    return set((getattr(wr, name, None) or getattr(wr_memory, name)).__annotations__)


@pytest.mark.parametrize("name", sorted(KINDS))
def test_help_of_a_work_request_has_its_keywords(name: str) -> None:
    text = pydoc.plain(pydoc.render_doc(KINDS[name]))
    assert "sges" not in text
    explained = inspect.getdoc(softhca.SendRequest)
    for option in options_of(KINDS[name]):
        assert option in text
        assert f"\n    {option}: " in explained

"""Public attributes have a type on which all checkers agree, whatever is assigned to them."""

from __future__ import annotations

import ast
import inspect
import textwrap

import pytest

import softhca
import softhca.testing

CLASSES = {
    one.__qualname__: one
    for facade in (softhca, softhca.testing)
    for name in facade.__all__
    if inspect.isclass(one := getattr(facade, name))
}


def statements(cls: type) -> list[ast.AST]:
    """What a class consists of; nothing of a class that Python did not make."""
    try:
        source = inspect.getsource(cls)
    except (OSError, TypeError):
        return []
    return list(ast.walk(ast.parse(textwrap.dedent(source))))


def own_attribute(target: ast.AST) -> str | None:
    """The X of `self.X`."""
    is_own = isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self"
    return target.attr if is_own else None


def declared(cls: type) -> set[str | None]:
    """Attributes of which a class says the type."""
    # Methods too: a work request's own `done` stands in for the class's.
    others = {n for n, it in vars(cls).items() if isinstance(it, property) or callable(it)}
    on_self = {
        own_attribute(node.target) for node in statements(cls) if isinstance(node, ast.AnnAssign)
    }
    return {*inspect.get_annotations(cls), *others, *on_self}


def assigned(cls: type) -> set[str]:
    """Public attributes that a class assigns to."""
    targets = [
        one
        for node in statements(cls)
        if isinstance(node, ast.Assign)
        for target in node.targets
        for one in (target.elts if isinstance(target, ast.Tuple) else [target])
    ]
    return {name for name in map(own_attribute, targets) if name and not name.startswith("_")}


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_public_attributes_are_annotated(name: str) -> None:
    known = set().union(*map(declared, CLASSES[name].__mro__))
    assert assigned(CLASSES[name]) <= known

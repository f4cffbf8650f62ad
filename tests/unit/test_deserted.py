"""A table that forgets what is deserted."""

from __future__ import annotations

from softhca.uabi.deserted import Swept


def test_what_is_deserted_is_never_much_more_than_what_is_not() -> None:
    present: set[int] = set(range(5))
    table: Swept[int, str] = Swept(lambda key, _: key not in present)
    forgotten: list[str] = []
    for key in range(1000):
        forgotten += table.add(key, str(key))
        assert len(table) <= 2 * len(present) + 8
    assert all(table.get(key) == str(key) for key in present)
    assert sorted([*forgotten, *table]) == sorted(map(str, range(1000)))


def test_there_are_two_looks_at_most_for_each_that_is_added() -> None:
    looks = 0

    def look(key: int, value: None) -> bool:
        nonlocal looks
        looks += 1
        return False

    table: Swept[int, None] = Swept(look)
    for count in range(1, 5000):
        assert not table.add(count, None)
        assert looks <= 2 * count
    assert len(table) == 4999

"""Runs random programs and compares them with the model.

PYTHONPATH=tests python -m programs.compare FIRST COUNT [LINK...]
"""

from __future__ import annotations

import sys
from typing import Any

from .generate import Program
from .world import ARENA, LINKS, World

NAMES = {
    "send": "SEND",
    "sendimm": "SEND",
    "sendinv": "SEND",
    "write": "RDMA_WRITE",
    "imm": "RDMA_WRITE",
    "read": "RDMA_READ",
    "add": "FETCH_ADD",
    "swap": "COMP_SWAP",
    "bind1": "BIND_MW",
    "bind2": "BIND_MW",
    "inv": "LOCAL_INV",
    "reg": "REG_MR",
    "mswap": "MASKED_COMP_SWAP",
    "madd": "MASKED_FETCH_ADD",
    "awrite": "ATOMIC_WRITE",
    "flush": "FLUSH",
}


class DisagreementError(AssertionError):
    """The model and what happened differ."""


def run(program: Program, link: str) -> None:
    """Runs a program over a link.

    Raises:
        DisagreementError: If something came differently.
    """
    world = World(link, program.plan)
    try:
        for index, one in enumerate(program.rounds):
            _round(world, one, f"seed {program.plan['seed']} {link} round {index}")
    finally:
        world.close()


def _expected(world: World, fields: tuple[Any, ...], is_send: bool) -> tuple[Any, ...]:
    if fields[1] != "SUCCESS":
        return fields
    if is_send:
        return (fields[0], "SUCCESS", NAMES[fields[2]], fields[3])
    extra = fields[4]
    if extra is not None and extra[0] == "inv":
        extra = ("inv", world.key(extra[1])[0])
    return (*fields[:4], extra)


def _vague(world: World, one: dict[str, Any]) -> set[int]:
    """Ends of which nobody knows how far they came: an answer was lost before one failed.

    Who refused is in ERR from then on, and answers nothing that is asked again.
    """
    if world.link != "lossy":
        return set()
    failed = {
        key[0]
        for key, all_of in one["completions"].items()
        if any(f[1] != "SUCCESS" for f in all_of)
    }
    world.smudged |= failed | {number ^ 1 for number in failed}
    return failed | {number ^ 1 for number in failed}


def _round(world: World, one: dict[str, Any], where: str) -> None:
    world.unpolled, world.unread = {}, []
    for step, refused in zip(one["steps"], one["refused"], strict=True):
        got = world.do(step)
        if got != refused:
            raise DisagreementError(f"{where}: {step[:3]} refused: {got!r}, not {refused!r}")
    world.settle({k: len(v) for k, v in one["completions"].items()}, len(one["events"]))
    wrong = []
    vague = _vague(world, one)
    for key in sorted(set(one["completions"]) | set(world.unpolled)):
        want = [_expected(world, f, key[1] == "S") for f in one["completions"].get(key, [])]
        got = world.unpolled.get(key, [])
        if key[0] in vague:
            continue
        if want != [g[0] for g in got]:
            at = next(
                (i for i, (w, g) in enumerate(zip(want, got, strict=False)) if w != g[0]),
                min(len(want), len(got)),
            )
            wrong.append(
                f"completions of {key}, {len(got)} of {len(want)}: number {at}: "
                f"{got[at : at + 2]}, not {want[at : at + 2]}"
            )
    events = sorted(e for e in world.unread if e[0] != "COMM_EST")
    if events != one["events"]:
        wrong.append(f"events {events}, not {one['events']}")
    for number, end in enumerate(world.ends):
        state = end["qp"].state
        if state is not one["states"][number]:
            wrong.append(f"end {number} is in {state!r}, not {one['states'][number]!r}")
        known, want = one["known"][number], one["memory"][number]
        got = bytes(end["buffer"])
        if number in world.smudged:
            continue
        if any(k and g != w for k, g, w in zip(known, got, want, strict=True)):
            bad = [i for i in range(ARENA) if known[i] and got[i] != want[i]]
            wrong.append(f"memory of end {number} at {bad[0]} to {bad[-1]}, {len(bad)} bytes")
        for (kind, i), mw in end["mws"].items():
            bound = mw.state.name == "VALID"
            if bound != one["keys"][kind, number, i]:
                wrong.append(f"{kind} {i} of end {number} is {mw.state!r}")
        if (end["fast"].state.name == "VALID") != one["keys"]["fast", number]:
            wrong.append(f"fast of end {number} is {end['fast'].state!r}")
    if wrong:
        steps = "\n    ".join(_short(s) for s in one["steps"])
        raise DisagreementError(f"{where}:\n  " + "\n  ".join(wrong) + f"\n  steps:\n    {steps}")


def _short(step: tuple[Any, ...]) -> str:
    def of(w: Any) -> str:
        if not isinstance(w, dict) or "id" not in w:
            return str(w)
        kept = {k: v for k, v in w.items() if v not in (False, None) and k not in ("id", "op")}
        return f"{w['id']}:{w.get('op', 'recv')} " + " ".join(
            f"{k}={len(v) if k == 'inline' else v}" for k, v in kept.items()
        )

    return " ".join(
        "".join("\n        " + of(w) for w in x) if isinstance(x, list) else str(x) for x in step
    )


def compare(seed: int, link: str) -> bool:
    """Runs the program of a seed over a link; whether that link can run it.

    Raises:
        DisagreementError: If something came differently.
    """
    program = Program(seed)
    kinds = {end["type"] for end in program.plan["ends"]}
    if link == "lossy" and kinds & {"UC", "UD"}:
        return False
    run(program, link)
    return True


def main() -> None:
    """Runs what the command line asks for, up to the fourth disagreement."""
    first, count = int(sys.argv[1]), int(sys.argv[2])
    ran = failed = 0
    for seed in range(first, first + count):
        for link in sys.argv[3:] or LINKS:
            try:
                ran += compare(seed, link)
            except DisagreementError as wrong:
                failed += 1
                print(wrong, flush=True)
                if failed > 3:
                    raise SystemExit(1) from None
    print(f"{ran} runs, {failed} disagreements")
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()

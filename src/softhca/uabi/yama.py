"""What Linux's Yama lets a supervisor do, and what to say where it does not.

A supervisor reads and writes the memory of programs, for which it needs the rights of a debugger.
"""

from __future__ import annotations

import errno
from pathlib import Path

_SCOPE = Path("/proc/sys/kernel/yama/ptrace_scope")
_CAP_SYS_PTRACE = 19
# Who may reach a process: whoever has its user; its ancestors alone; root alone; nobody.
_ANCESTORS, _PRIVILEGED, _NOBODY = 1, 2, 3
_CURE = "sysctl kernel.yama.ptrace_scope=0, as root, lifts that"


def scope() -> int:
    """Yama's ptrace_scope; 0, where there is no Yama."""
    try:
        return int(_SCOPE.read_text())
    except (OSError, ValueError):
        return 0


def _is_privileged() -> bool:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> _CAP_SYS_PTRACE & 1)
    return False


def demand_reach() -> None:
    """Refuses to begin what Yama would not let work.

    Raises:
        PermissionError: EPERM, with the reason.
    """
    rule = scope()
    if rule >= _NOBODY:
        raise PermissionError(
            errno.EPERM,
            "Yama's ptrace_scope is 3: nobody may reach the memory of programs, and only a reboot "
            "changes that",
        )
    if rule == _PRIVILEGED and not _is_privileged():
        raise PermissionError(
            errno.EPERM,
            "Yama's ptrace_scope is 2: to reach the memory of programs needs CAP_SYS_PTRACE; "
            f"{_CURE}",
        )


def explain(task: int, *, is_descendant: bool) -> str:
    """Why the memory of a task may not be reached."""
    head = f"the memory of task {task} may not be reached, so that it finds no device: "
    rule = scope()
    if rule == _ANCESTORS and not is_descendant:
        return (
            f"{head}Yama's ptrace_scope is 1, which lets a supervisor reach the programs that "
            "`softhca run --attach` starts, and not what they start in turn; run them without "
            f"--attach, or {_CURE}"
        )
    if rule:
        return f"{head}Yama's ptrace_scope is {rule}; {_CURE}"
    return (
        f"{head}it is another user's or has made itself undumpable (prctl(2), PR_SET_DUMPABLE), "
        "which a supervisor with CAP_SYS_PTRACE may reach (`docker run --cap-add SYS_PTRACE`)"
    )

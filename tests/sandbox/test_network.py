"""Network namespaces as containers and sandboxes have them."""

from __future__ import annotations

import sys

from .labelled import ADDRESSES, LABEL
from .sandboxed import SOFTHCA, run, words_inside

UP = 'ip link set lo up && exec "$@"'
SECOND = 'ip link set lo up && ip address add 192.0.2.7/32 dev lo && exec "$@"'
SHOWN = ("rxe0/parent", "rxe0/ports/1/gid_attrs/ndevs/0")
# The rules about routes begin behind 5.
RULES = "".join(
    [
        "ip link set lo up",
        *(f" && ip -6 address add {address}/128 dev lo nodad" for address in ADDRESSES),
        " && ip -6 rule add pref 100 table local && ip -6 rule delete pref 0",
        ' && exec "$@"',
    ]
)
# To be root means nothing without capabilities, as in a container that has dropped all of them.
PORTS = """
echo 10000 > /proc/sys/net/ipv4/ip_unprivileged_port_start && ip link set lo up || exit 77
exec setpriv --bounding-set=-all --inh-caps=-all "$@"
"""


def inside(script: str) -> tuple[str, ...]:
    """What goes before a command to run it in a network namespace that a script sets up."""
    return words_inside(script, "no such network namespace is to be had", "--net")


def test_a_loopback_interface_that_is_down_is_named() -> None:
    done = run(*inside('exec "$@"'), *SOFTHCA, "devinfo")
    assert done.returncode != 0
    assert "the loopback interface is down: `ip link set lo up`" in done.stderr, done.stderr


def test_a_network_with_nothing_but_loopback_is_enough() -> None:
    done = run(*inside(UP), *SOFTHCA, "devinfo")
    assert done.returncode == 0, done.stderr


def test_a_port_that_only_root_may_have_is_explained() -> None:
    done = run(*inside(PORTS), *SOFTHCA, "devinfo")
    assert done.returncode != 0
    assert "net.ipv4.ip_unprivileged_port_start is 10000" in done.stderr, done.stderr


def test_programs_are_told_the_interface_of_an_address_that_is_not_its_first() -> None:
    shown = (f"/sys/class/infiniband/{file}" for file in SHOWN)
    done = run(*inside(SECOND), *SOFTHCA, "run", "--address", "192.0.2.7", "--", "cat", *shown)
    assert done.stdout.split() == ["lo", "lo"], done.stderr


def test_a_route_that_led_nowhere_does_not_cost_the_flow_labels() -> None:
    done = run(*inside(RULES), sys.executable, "-m", "tests.sandbox.labelled")
    assert done.stdout.split() == [str(LABEL)] * 2, done.stderr

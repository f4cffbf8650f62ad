#!/bin/bash
# Runs in the guest as root: two kernel devices, rxe0 and rxe1, on a veth pair, and two namespaces,
# west and east, on another of the same kind for softhca.
. "$RXE_LIB"
# Room for a path MTU of 4096 and all headers.
export VETH_MTU=4300
pair_up rxe || exit 1
for end in v0 v1; do ethtool -K "$end" tx on gso on gro on tso on >/dev/null 2>&1; done
ip netns add west; ip netns add east
ip link add w0 mtu "$VETH_MTU" netns west type veth peer name e0 mtu "$VETH_MTU" netns east
ip -n west addr add 10.8.0.1/24 dev w0; ip -n east addr add 10.8.0.2/24 dev e0
for name in west east; do ip -n "$name" link set lo up; done
ip -n west link set w0 up; ip -n east link set e0 up
# The first packet would wait for ARP.
ping -c 1 -W 2 -I v0 10.9.0.2 >/dev/null; ip netns exec west ping -c 1 -W 2 10.8.0.2 >/dev/null
export PYTHONPATH=/host/site:/host PYTHONDONTWRITEBYTECODE=1
exec python3 -m bench.guest.rounds "$(gid_index rxe0)" "$@"

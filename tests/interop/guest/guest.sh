#!/bin/bash
# Runs in the guest as root: kernel rxe0 on 10.9.0.1, softhca in namespace "peer" on 10.9.0.2.
. "$RXE_LIB"
# Room for a path MTU of 4096 and all headers, so that rxe's active MTU is 4096.
VETH_MTU=4300 peer_up || exit 1
export PYTHONPATH=/host/site PYTHONDONTWRITEBYTECODE=1
until grep -qs '^fd09' /sys/class/infiniband/rxe0/ports/1/gids/*; do sleep 0.1; done
# The first packet would wait for ARP.
ping -c 1 -W 2 10.9.0.2 >/dev/null; ping -c 1 -W 2 fd09::2 >/dev/null
exec python3 /host/main.py "$@"

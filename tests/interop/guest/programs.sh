#!/bin/bash
# Runs in the guest as root: unmodified programs on kernel rxe0, and under softhca in "peer".
. "$RXE_LIB"
VETH_MTU=4300 peer_up || exit 1
export PYTHONPATH=/host/site PYTHONDONTWRITEBYTECODE=1
ping -c 1 -W 2 10.9.0.2 >/dev/null
exec python3 /host/uabi/program_list.py "$@"

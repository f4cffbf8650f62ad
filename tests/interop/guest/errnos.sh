#!/bin/bash
# Runs in the guest as root: what kernel rxe and softhca say to commands that are nearly right.
# errnos.sh SEED COUNT prints where they differ, and why; it fails where that is not known.
. "$RXE_LIB"
peer_up || exit 1
export PYTHONPATH=/host/site PYTHONDONTWRITEBYTECODE=1
cd /host/uabi || exit 1
python3 errno_list.py "$@" >/tmp/kernel
ip netns exec peer python3 -m softhca run --address 10.9.0.2 -- python3 errno_list.py "$@" >/tmp/ours
exec python3 errno_compare.py /tmp/kernel /tmp/ours

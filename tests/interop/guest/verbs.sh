#!/bin/bash
# Runs in the guest as root: what kernel rxe and softhca say to verbs that are nearly right.
# verbs.sh SEED FIRST COUNT prints where they differ, and why; it fails where that is not known.
. "$RXE_LIB"
peer_up || exit 1
export PYTHONPATH=/host/site PYTHONDONTWRITEBYTECODE=1
cd /host/uabi || exit 1
[ -x ./verbs_list.bin ] || { echo "skipped: no C compiler or no libibverbs-dev outside"; exit 0; }
# Both wait more than they work.
./verbs_list.bin "$@" >/tmp/kernel &
ip netns exec peer python3 -m softhca run --doorbells asked --address 10.9.0.2 -- \
    ./verbs_list.bin "$@" >/tmp/ours
wait
exec python3 verbs_compare.py kernel /tmp/kernel /tmp/ours

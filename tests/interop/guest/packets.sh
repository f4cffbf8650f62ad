#!/bin/bash
# Runs in the guest as root: what kernel rxe and softhca make of packets that are nearly right.
# packets.sh SEED FIRST COUNT prints where they differ, and why; it fails where that is not known.
. "$RXE_LIB"
peer_up || exit 1
export PYTHONPATH=/host/site PYTHONDONTWRITEBYTECODE=1
# Who sends them has addresses of its own, beside softhca's.
for address in 10.9.0.3 10.9.0.4; do ip -n peer addr add $address/24 dev v1; done
ping -c 1 -W 2 -I 10.9.0.1 10.9.0.3 >/dev/null
cd /host || exit 1
# Both wait more than they work.
python3 packet_list.py "$@" --to 10.9.0.1 --from 10.9.0.3 --netns peer >/tmp/kernel &
ip netns exec peer python3 -m softhca run --address 10.9.0.2 -- \
    python3 packet_list.py "$@" --to 10.9.0.2 --from 10.9.0.4 >/tmp/ours
wait
exec python3 packet_compare.py /tmp/kernel /tmp/ours

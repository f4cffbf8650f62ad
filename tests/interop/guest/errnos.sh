#!/bin/bash
# Runs in the guest as root: what kernel rxe and softhca say to commands that are nearly right.
# errnos.sh SEED COUNT prints where they differ: command, the kernel's word, ours, how often.
. "$RXE_LIB"
peer_up || exit 1
export PYTHONPATH=/host/site PYTHONDONTWRITEBYTECODE=1
cd /host/uabi || exit 1
python3 errno_list.py "$@" >/tmp/kernel
ip netns exec peer python3 -m softhca run --address 10.9.0.2 -- python3 errno_list.py "$@" >/tmp/ours
echo "$(wc -l </tmp/kernel) by the kernel, $(wc -l </tmp/ours) by softhca"
join -t "$(printf '\t')" -o 1.2,1.3,2.3,1.1 <(sort /tmp/kernel) <(sort /tmp/ours) |
    awk -F '\t' '{all++} $2 != $3 {count[$1 "\t" $2 "\t" $3]++; first[$1 "\t" $2 "\t" $3] = $4}
        END {for (one in count) {print one "\t" count[one] "\t" first[one]; wrong += count[one]}
             print wrong + 0 " of " all " differ"}' | sort

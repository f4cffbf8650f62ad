#!/bin/bash
# Runs in the guest as root: whether kernel rxe refuses as tests/uabi/wrong_commands.py has it.
. "$RXE_LIB"
peer_up || exit 1
export PYTHONPATH=/host/site PYTHONDONTWRITEBYTECODE=1
cd /host/uabi || exit 1
exec python3 wrong_commands.py kernel

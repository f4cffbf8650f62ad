"""NVIDIA's NIXL (PyPI) over UCX: writes to another process, and reads from it."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

from nixl._api import nixl_agent, nixl_agent_config
from transfer_ends import SIZES, Memory, move, owner


def open_engine(memory: Memory) -> tuple[Any, bytes]:
    """An agent that has the memory registered, and what others must know of it."""
    agent = nixl_agent(str(os.getpid()), nixl_agent_config(backends=["UCX"]))
    agent.register_memory([(memory.address, max(SIZES), 0, "")], "DRAM")
    return agent, agent.get_agent_metadata()


def main() -> None:
    """Moves bytes, and compares them."""
    memory = Memory()
    agent, _ = open_engine(memory)
    with owner(open_engine) as (metadata, there, look):
        name = agent.add_remote_agent(metadata)

        def transfer(operation: str, size: int) -> None:
            near = agent.get_xfer_descs([(memory.address, size, 0)], "DRAM")
            far = agent.get_xfer_descs([(there, size, 0)], "DRAM")
            handle = agent.initialize_xfer(operation, near, far, name)
            state = agent.transfer(handle)
            while state not in ("DONE", "ERR"):
                state = agent.check_xfer_state(handle)
            assert state == "DONE", state
            agent.release_xfer_handle(handle)

        move(memory, partial(transfer, "WRITE"), partial(transfer, "READ"), look)
    os._exit(0)


if __name__ == "__main__":
    main()

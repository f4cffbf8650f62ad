"""What OSU's benchmarks measure, in a few lines: `mpi_program.py latency|bandwidth|alltoall`.

Every byte is looked at.
"""

import sys
import time

from mpi4py import MPI

SIZES = (8, 1024, 65536, 1 << 20)
WINDOW = 16


def latency(world: MPI.Intracomm, size: int) -> float:
    """Pairs of ranks send to and fro; half a round trip in microseconds."""
    peer = world.rank ^ 1
    mine, theirs = bytearray([world.rank]) * size, bytearray(size)
    rounds = 20
    started = time.perf_counter()
    for _ in range(rounds):
        if world.rank < peer:
            world.Send(mine, peer)
            world.Recv(theirs, peer)
        else:
            world.Recv(theirs, peer)
            world.Send(mine, peer)
    spent = time.perf_counter() - started
    assert theirs == bytes([peer]) * size
    return spent / rounds / 2 * 1e6


def bandwidth(world: MPI.Intracomm, size: int) -> float:
    """Half of the ranks send windows of messages to the other; megabytes a second."""
    peer = world.rank ^ 1
    buffers = [bytearray([number]) * size for number in range(WINDOW)]
    rounds = 3
    started = time.perf_counter()
    for _ in range(rounds):
        if world.rank < peer:
            MPI.Request.Waitall([world.Isend(buffer, peer) for buffer in buffers])
            world.Recv(bytearray(1), peer)
        else:
            rooms = [bytearray(size) for _ in range(WINDOW)]
            MPI.Request.Waitall([world.Irecv(room, peer) for room in rooms])
            assert rooms == buffers
            world.Send(b"x", peer)
    return rounds * WINDOW * size / (time.perf_counter() - started) / 1e6


def alltoall(world: MPI.Intracomm, size: int) -> float:
    """Everybody sends to everybody; microseconds."""
    mine, everybodys = bytearray([world.rank]) * (size * world.size), bytearray(size * world.size)
    rounds = 5
    started = time.perf_counter()
    for _ in range(rounds):
        world.Alltoall(mine, everybodys)
    spent = time.perf_counter() - started
    assert everybodys == b"".join(bytes([rank]) * size for rank in range(world.size))
    return spent / rounds * 1e6


def main() -> None:
    """Runs a test at every size."""
    world = MPI.COMM_WORLD
    name = sys.argv[1]
    test = {"latency": latency, "bandwidth": bandwidth, "alltoall": alltoall}[name]
    for size in SIZES:
        world.Barrier()
        figure = test(world, size)
        if world.rank == 0:
            print(f"{name} {size} B: {figure:.1f}", flush=True)
    world.Barrier()
    if world.rank == 0:
        print(f"{name} is done")


if __name__ == "__main__":
    main()

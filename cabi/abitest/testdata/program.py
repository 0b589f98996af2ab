# A Python program that calls the library by ctypes, with handlers and threads of Python's.
import ctypes, signal, subprocess, sys, threading

mpi = ctypes.CDLL(sys.argv[1])


def named(name):  # Open MPI's handles are addresses of data objects
    return ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(mpi, name)))


if sys.argv[1] == "libmpi_abi.so.1":
    world, double, add, multiple = ctypes.c_void_p(0x101), ctypes.c_void_p(0x214), ctypes.c_void_p(0x21), 4096
elif sys.argv[1] == "libmpich.so.12":
    world, double, add, multiple = ctypes.c_int(0x44000000), ctypes.c_int(0x4C00080B), ctypes.c_int(0x58000003), 3
else:
    world, double, add, multiple = named("ompi_mpi_comm_world"), named("ompi_mpi_double"), named("ompi_mpi_op_sum"), 3
ticks = 0


def tick(*_):
    global ticks
    ticks += 1


def allreduce(value):
    out, result = ctypes.c_double(value), ctypes.c_double()
    assert mpi.MPI_Allreduce(ctypes.byref(out), ctypes.byref(result), 1, double, add, world) == 0
    return result.value


signal.signal(signal.SIGALRM, tick)
provided, rank, size = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
assert mpi.MPI_Init_thread(None, None, multiple, ctypes.byref(provided)) == 0 and provided.value == multiple
mpi.MPI_Comm_rank(world, ctypes.byref(rank))
mpi.MPI_Comm_size(world, ctypes.byref(size))
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
while allreduce(min(ticks, 10)) < 10 * size.value:
    pass
signal.setitimer(signal.ITIMER_REAL, 0)
thread = threading.Thread(target=lambda: allreduce(rank.value))
thread.start()
thread.join()
assert subprocess.run([sys.executable, "-c", "raise SystemExit(7)"]).returncode == 7
assert allreduce(rank.value) == size.value * (size.value - 1) / 2
if rank.value == 0:
    print("passed by", size.value)
mpi.MPI_Finalize()

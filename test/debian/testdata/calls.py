"""Calls MPI through mpi4py, most of it with pickled objects and in several threads, and has rank 0
print one line for each call: its name, and what all ranks got."""

import array
import threading

from mpi4py import MPI

world = MPI.COMM_WORLD
rank, size = world.Get_rank(), world.Get_size()
right, left = (rank + 1) % size, (rank - 1) % size


def report(name, got):
    everyone = world.gather(got, root=0)
    if rank == 0:
        print(name, everyone, flush=True)


def fails(call, *args):
    """Returns the class of the error that a call ends with."""
    try:
        call(*args)
    except MPI.Exception as e:
        return e.Get_error_class() == MPI.ERR_RANK or e.Get_error_class()
    return "no error"


# Environment.
report("Is_initialized", MPI.Is_initialized() and not MPI.Is_finalized())
report("Query_thread", MPI.Query_thread() == MPI.THREAD_MULTIPLE)
report("Is_thread_main", MPI.Is_thread_main())
report("Get_version", MPI.Get_version() >= (3, 1))
report("Get_processor_name", len(MPI.Get_processor_name()) > 0)
report("Wtime", MPI.Wtime() <= MPI.Wtime() and 0 < MPI.Wtick() < 1)
report("TAG_UB", world.Get_attr(MPI.TAG_UB) >= 32767)
report("Alloc_mem", len(MPI.Alloc_mem(100)))
info = MPI.Info.Create()
info.Set("key", "value")
report("Info", (info.Get("key"), info.Get("other"), info.Get_nkeys(), dict(info.Dup())))
info.Free()

# Point to point with pickled objects.
item = {"rank": rank, "list": [1, 2.5, None], "text": "\u00e4" * rank}
report("sendrecv", world.sendrecv(item, right, 1, source=left, recvtag=1))
request = world.isend(item, right, 2)
report("isend, recv", world.recv(source=left, tag=2))
request.wait()
request = world.irecv(source=left, tag=3)
world.send(("tuple", rank), right, 3)
report("irecv", request.wait())
request = world.issend(b"bytes", right, 4)
status = MPI.Status()
world.probe(left, 4, status)
report("probe", (status.Get_source() == left, status.Get_tag(), status.Get_count(MPI.BYTE) > 5, status.Get_error()))
report("iprobe", (world.iprobe(left, 4), world.iprobe(left, 5)))
message = world.mprobe(left, 4)
report("mprobe", message.recv())
request.wait()
MPI.Attach_buffer(bytearray(1000 + MPI.BSEND_OVERHEAD))
world.bsend("buffered", right, 5)
report("bsend", world.recv(source=left, tag=5))
MPI.Detach_buffer()
big = list(range(200000))
request = world.isend(big, right, 6)
report("large object", world.recv(source=left, tag=6) == big)
request.wait()
requests = [world.isend(i, right, 10 + i) for i in range(5)]
report("waitall", [world.recv(source=left, tag=10 + i) for i in reversed(range(5))])
MPI.Request.waitall(requests)
requests = [world.isend("any", right, 20)]
report("recv ANY_SOURCE", world.recv(source=MPI.ANY_SOURCE, tag=MPI.ANY_TAG))
report("waitany", MPI.Request.waitany(requests))
report("PROC_NULL", world.recv(source=MPI.PROC_NULL))

# Point to point with buffers.
numbers, room = array.array("d", [rank + i / 2 for i in range(8)]), array.array("d", [0] * 8)
world.Sendrecv([numbers, MPI.DOUBLE], right, 1, [room, MPI.DOUBLE], left, 1, status)
report("Sendrecv", (list(room), status.Get_count(MPI.DOUBLE), status.Get_elements(MPI.DOUBLE)))
world.Sendrecv_replace([room, MPI.DOUBLE], left, 2, right, 2)
report("Sendrecv_replace", room == numbers)
receive, send = world.Recv_init([room, MPI.DOUBLE], left, 3), world.Send_init([numbers, MPI.DOUBLE], right, 3)
for _ in range(3):
    MPI.Prequest.Startall([receive, send])
    MPI.Request.Waitall([receive, send])
report("Startall", list(room))
receive.Free(), send.Free()
request = world.Irecv([room, MPI.DOUBLE], left, 99)
request.Cancel()
request.Wait(status)
report("Cancel", status.Is_cancelled())
column = MPI.DOUBLE.Create_vector(4, 1, 2).Commit()
world.Sendrecv([numbers, 1, column], right, 4, [room, 4, MPI.DOUBLE], left, 4)
report("Create_vector", (list(room[:4]), column.Get_extent(), column.Get_size(), column.Get_envelope()[3] == MPI.COMBINER_VECTOR))
pair = MPI.Datatype.Create_struct([1, 2], [0, 8], [MPI.DOUBLE, MPI.INT]).Commit()
packed = bytearray(pair.Pack_size(1, world))
report("Pack", pair.Pack(array.array("d", [1.5, 0]), packed, 0, world))
report("Create_subarray", MPI.INT.Create_subarray([4, 4], [2, 2], [1, 1]).Get_true_extent())
report("Get_name", (pair.Get_name(), MPI.DOUBLE.Get_name()))
column.Free(), pair.Free()

# Collective calls.
world.barrier()
report("bcast", world.bcast({"from": 0} if rank == 0 else None, root=0))
report("scatter", world.scatter([(i, i * i) for i in range(size)] if rank == size - 1 else None, root=size - 1))
report("gather", world.gather(rank * 3, root=size - 1))
report("allgather", world.allgather({rank}))
report("alltoall", world.alltoall([(rank, i) for i in range(size)]))
report("reduce", world.reduce([rank], op=MPI.SUM, root=0))
report("allreduce", (world.allreduce(rank + 1, op=MPI.PROD), world.allreduce(rank, op=MPI.MAX)))
report("scan", (world.scan([rank]), world.exscan([rank])))
world.Allreduce(MPI.IN_PLACE, [numbers, MPI.DOUBLE])
report("Allreduce IN_PLACE", list(numbers))
where = array.array("i", [rank % 2, rank])
best = array.array("i", [0, 0])
world.Allreduce([where, 1, MPI.INT_INT], [best, 1, MPI.INT_INT], MPI.MAXLOC)
report("MAXLOC", list(best))
highest = MPI.Op.Create(lambda a, b, _: b.__setitem__(slice(None), bytes(map(max, a, b))), commute=True)
text = bytearray(b"%04d" % (rank * 7))
world.Allreduce(MPI.IN_PLACE, [text, MPI.BYTE], highest)
report("Op.Create", bytes(text))
highest.Free()
counts = [i + 1 for i in range(size)]
every = array.array("i", [0] * sum(counts))
world.Allgatherv([array.array("i", [rank] * (rank + 1)), MPI.INT], [every, counts, None, MPI.INT])
report("Allgatherv", list(every))
world.Alltoallv([array.array("i", [rank] * size), [1] * size, None, MPI.INT], [every, [1] * size, None, MPI.INT])
report("Alltoallv", list(every[:size]))
total = array.array("i", [0])
world.Reduce_scatter_block([array.array("i", range(size)), MPI.INT], [total, MPI.INT])
report("Reduce_scatter_block", total[0])
mine = array.array("i", [rank])
request = world.Iallreduce([mine, MPI.INT], [total, MPI.INT])
request.Wait()
report("Iallreduce", total[0])
request = world.Ibarrier()
while not request.Test():
    pass
report("Ibarrier", request == MPI.REQUEST_NULL)

# Groups, communicators and topologies.
half = world.Split(rank % 2, -rank)
report("Split", (half.Get_rank(), half.Get_size(), half.allgather(rank)))
group = world.Get_group()
report("Group", (group.Get_size(), group.Excl([0]).Get_size(), MPI.Group.Translate_ranks(half.Get_group(), [0], group)))
again = world.Dup()
again.Set_name("again")
report("Dup", (again.Get_name(), MPI.Comm.Compare(world, again) == MPI.CONGRUENT))
keyval = MPI.Comm.Create_keyval(copy_fn=lambda comm, key, value: value + 1)
again.Set_attr(keyval, 41)
third = again.Dup()
report("Create_keyval", (again.Get_attr(keyval), third.Get_attr(keyval)))
third.Free()
report("Create_group", world.Create_group(group.Incl([0]), 7) != MPI.COMM_NULL if rank == 0 else None)
report("Split_type", world.Split_type(MPI.COMM_TYPE_SHARED).Get_size() >= 1)
cart = world.Create_cart(MPI.Compute_dims(size, 1), periods=[True])
report("Create_cart", (cart.Get_topo()[:2], cart.Shift(0, 1) == (cart.Get_cart_rank([rank - 1]), cart.Get_cart_rank([rank + 1]))))
report("neighbor_allgather", cart.neighbor_allgather(rank))
graph = world.Create_dist_graph_adjacent([left], [right])
report("neighbor_alltoall", graph.neighbor_alltoall([item["rank"]]))
inter = half.Create_intercomm(half.Get_size() - 1, world, 1 - rank % 2, 8) if size > 1 else None
report("Create_intercomm", (inter.Get_remote_size(), inter.allgather(rank), inter.Merge().Get_size()) if inter else None)

# Errors.
report("Exception", fails(world.send, None, size))
report("Get_error_string", len(MPI.Get_error_string(MPI.ERR_TAG)) > 0)
report("Get_errhandler", world.Get_errhandler() == MPI.ERRORS_RETURN)

# Threads, each with a communicator and objects of its own; then on one communicator by their tags. At the
# first collective call with objects mpi4py duplicates the communicator, and no other thread of Python's
# goes on while it does: calls for several communicators at once could wait for each other for ever.
threads = 4
comms = [world.Dup() for _ in range(threads)]
for comm in comms:
    comm.barrier(), comm.allreduce(0)
results = [None] * threads


def ring(comm, number, tag):
    token = []
    for turn in range(50):
        token = comm.sendrecv(token + [(number, turn)] if turn % 10 else [], right, tag, source=left, recvtag=tag)
    results[number] = (token[-1], len(token), comm.allreduce(number) if comm != world else None)


for name, pick in ("a communicator each", comms.__getitem__), ("one communicator", lambda number: world):
    running = [threading.Thread(target=ring, args=(pick(number), number, 100 + number)) for number in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    report("threads, " + name, list(results))

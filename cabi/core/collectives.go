package core

import (
	"github.com/isthmus-grid/isthmus/cabi/core/callbacks"
	"github.com/isthmus-grid/isthmus/mpilib"
)

// A description makes a collective call of its arguments, for a communicator. Functions that return one are called like the
// call; the call is then made in one of three forms, by blocking, nonblocking (MPI-5.0, section 6.12) or persistent (section
// 6.13). cabi/generate writes the functions of all three (forms.go) for each of them.
type description func(c *communicator, b *builder) mpilib.Collective

// describe makes the call of a description.
func (d description) describe(c *communicator) (made mpilib.Collective, user bool, err error) {
	var b builder
	made = d(c, &b)
	return made, b.user, b.err
}

// blocking makes a collective call.
func blocking(call string, comm uintptr, d description) int32 {
	return onComm(call, comm, func(c *communicator) error {
		made, _, err := d.describe(c)
		if err != nil {
			return err
		}
		return made.Call(background)
	})
}

// nonblocking starts a collective call and stores the handle of its request.
func nonblocking(call string, comm, out uintptr, d description) int32 {
	return onComm(call, comm, func(c *communicator) error {
		made, user, err := d.describe(c)
		if err != nil {
			return err
		}
		if user {
			callbacks.Started()
		}
		store(out, requests.Add(&request{comm: c, held: collectiveCall, user: user, once: made.Start()}))
		return nil
	})
}

// persistent prepares a collective call and stores the handle of its request. No hints are known.
func persistent(call string, comm, info, out uintptr, d description) int32 {
	return onComm(call, comm, func(c *communicator) error {
		if _, err := infoOf(info); err != nil {
			return err
		}
		made, user, err := d.describe(c)
		if err != nil {
			return err
		}
		store(out, requests.Add(&request{comm: c, held: collectiveCall, user: user, repeated: made.Init().KeepActive()}))
		return nil
	})
}

// barrier describes a Barrier.
func barrier() description {
	return func(c *communicator, _ *builder) mpilib.Collective { return mpilib.BarrierCall(c.Comm) }
}

// bcast describes a Bcast.
func bcast(buffer uintptr, count int64, datatype uintptr, root int32) description {
	return func(c *communicator, b *builder) mpilib.Collective {
		return mpilib.BcastParts(c.Comm, b.part(buffer, count, datatype), rankOf(root))
	}
}

// gather describes a Gather.
func gather(sendbuf uintptr, sendcount int64, sendtype, recvbuf uintptr, recvcount int64, recvtype uintptr, root int32) description {
	return func(c *communicator, b *builder) mpilib.Collective {
		var recv mpilib.Part
		if c.isRoot(root) {
			recv = b.part(recvbuf, recvcount*int64(c.peers()), recvtype)
		}
		send := b.rooted(c, root, sendbuf, sendcount, sendtype, func() mpilib.Part {
			return b.block(recvbuf, recvcount*int64(c.Rank()), recvcount, recvtype)
		})
		return mpilib.GatherParts(c.Comm, send, recv, rankOf(root))
	}
}

// rooted is what a process gives the root, or gets from it: own is its block of the root's memory, which it already is in
// at the root in place (MPI_IN_PLACE).
func (b *builder) rooted(c *communicator, root int32, buf uintptr, count int64, datatype uintptr, own func() mpilib.Part) mpilib.Part {
	switch {
	case c.IsInter() && (c.isRoot(root) || root == procNull):
		return mpilib.Part{}
	case buf == inPlace:
		return own()
	}
	return b.part(buf, count, datatype)
}

// gatherv describes a Gatherv.
func gatherv(sendbuf uintptr, sendcount int64, sendtype, recvbuf, recvcounts, displs, recvtype uintptr, root, wide int32) description {
	return func(c *communicator, b *builder) mpilib.Collective {
		var recv []mpilib.Part
		if c.isRoot(root) {
			recv = b.blocks(recvbuf, recvcounts, displs, recvtype, c.peers(), wide)
		}
		send := b.rooted(c, root, sendbuf, sendcount, sendtype, func() mpilib.Part { return recv[c.Rank()] })
		return mpilib.GathervParts(c.Comm, send, recv, rankOf(root))
	}
}

// blocks is a part for each of n processes.
func (b *builder) blocks(buf, counts, displs, datatype uintptr, n int, wide int32) []mpilib.Part {
	out := make([]mpilib.Part, n)
	lengths, begins := integers(counts, n, wide), integers(displs, n, wide)
	for i := range out {
		out[i] = b.block(buf, int64(begins[i]), int64(lengths[i]), datatype)
	}
	return out
}

// scatter describes a Scatter.
func scatter(sendbuf uintptr, sendcount int64, sendtype, recvbuf uintptr, recvcount int64, recvtype uintptr, root int32) description {
	return func(c *communicator, b *builder) mpilib.Collective {
		var send mpilib.Part
		if c.isRoot(root) {
			send = b.part(sendbuf, sendcount*int64(c.peers()), sendtype)
		}
		recv := b.rooted(c, root, recvbuf, recvcount, recvtype, func() mpilib.Part {
			return b.block(sendbuf, sendcount*int64(c.Rank()), sendcount, sendtype)
		})
		return mpilib.ScatterParts(c.Comm, send, recv, rankOf(root))
	}
}

// scatterv describes a Scatterv.
func scatterv(sendbuf, sendcounts, displs, sendtype, recvbuf uintptr, recvcount int64, recvtype uintptr, root, wide int32) description {
	return func(c *communicator, b *builder) mpilib.Collective {
		var send []mpilib.Part
		if c.isRoot(root) {
			send = b.blocks(sendbuf, sendcounts, displs, sendtype, c.peers(), wide)
		}
		recv := b.rooted(c, root, recvbuf, recvcount, recvtype, func() mpilib.Part { return send[c.Rank()] })
		return mpilib.ScattervParts(c.Comm, send, recv, rankOf(root))
	}
}

// allgather describes an Allgather.
func allgather(sendbuf uintptr, sendcount int64, sendtype, recvbuf uintptr, recvcount int64, recvtype uintptr) description {
	return func(c *communicator, b *builder) mpilib.Collective {
		recv := b.part(recvbuf, recvcount*int64(c.peers()), recvtype)
		if sendbuf == inPlace {
			return mpilib.AllgatherParts(c.Comm, b.block(recvbuf, recvcount*int64(c.Rank()), recvcount, recvtype), recv)
		}
		return mpilib.AllgatherParts(c.Comm, b.part(sendbuf, sendcount, sendtype), recv)
	}
}

// allgatherv describes an Allgatherv.
func allgatherv(sendbuf uintptr, sendcount int64, sendtype, recvbuf, recvcounts, displs, recvtype uintptr, wide int32) description {
	return func(c *communicator, b *builder) mpilib.Collective {
		recv := b.blocks(recvbuf, recvcounts, displs, recvtype, c.peers(), wide)
		if sendbuf == inPlace {
			return mpilib.AllgathervParts(c.Comm, recv[c.Rank()], recv)
		}
		return mpilib.AllgathervParts(c.Comm, b.part(sendbuf, sendcount, sendtype), recv)
	}
}

// alltoall describes an Alltoall.
func alltoall(sendbuf uintptr, sendcount int64, sendtype, recvbuf uintptr, recvcount int64, recvtype uintptr) description {
	return func(c *communicator, b *builder) mpilib.Collective {
		n := int64(c.peers())
		recv := b.part(recvbuf, recvcount*n, recvtype)
		send := recv
		if sendbuf != inPlace {
			send = b.part(sendbuf, sendcount*n, sendtype)
		}
		return mpilib.AlltoallParts(c.Comm, send, recv)
	}
}

// alltoallv describes an Alltoallv.
func alltoallv(sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts, rdispls, recvtype uintptr, wide int32) description {
	return func(c *communicator, b *builder) mpilib.Collective {
		recv := b.blocks(recvbuf, recvcounts, rdispls, recvtype, c.peers(), wide)
		send := recv
		if sendbuf != inPlace {
			send = b.blocks(sendbuf, sendcounts, sdispls, sendtype, c.peers(), wide)
		}
		return mpilib.AlltoallvParts(c.Comm, send, recv)
	}
}

// alltoallw describes an Alltoallw.
func alltoallw(sendbuf, sendcounts, sdispls, sendtypes, recvbuf, recvcounts, rdispls, recvtypes uintptr, wide int32) description {
	return func(c *communicator, b *builder) mpilib.Collective {
		recv := b.typedBlocks(recvbuf, recvcounts, rdispls, recvtypes, c.peers(), wide)
		send := recv
		if sendbuf != inPlace {
			send = b.typedBlocks(sendbuf, sendcounts, sdispls, sendtypes, c.peers(), wide)
		}
		return mpilib.AlltoallwParts(c.Comm, send, recv)
	}
}

// typedBlocks is a part for each of n processes, each of its own type.
func (b *builder) typedBlocks(buf, counts, displs, datatypes uintptr, n int, wide int32) []mpilib.Part {
	out := make([]mpilib.Part, n)
	lengths, begins := integers(counts, n, wide), integers(displs, n, wide)
	for i, datatype := range elements[uintptr](datatypes, n) {
		out[i] = b.bytesFrom(buf, int64(begins[i]), int64(lengths[i]), datatype)
	}
	return out
}

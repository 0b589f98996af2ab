package core

import (
	"errors"

	"github.com/isthmus-grid/isthmus/mpilib"
)

// CommCreate makes a communicator of a group (MPI-5.0, section 7.4.2). All processes make the call, also one whose group is
// invalid, which fails on all of them.
func CommCreate(comm, group, newcomm uintptr) int32 {
	return onComm("MPI_Comm_create", comm, func(c *communicator) error {
		g, invalid := c.groupOf(group)
		made, err := c.Create(background, g.members())
		return c.create(made, ofGroup(invalid, err), newcomm)
	})
}

// CommCreateGroup is CommCreate that only members of the group call.
func CommCreateGroup(comm, group uintptr, tag int32, newcomm uintptr) int32 {
	return onComm("MPI_Comm_create_group", comm, func(c *communicator) error {
		g, err := c.groupOf(group)
		if err != nil {
			return err
		}
		made, err := c.CreateGroup(background, g.members(), tagOf(tag))
		return c.create(made, ofGroup(nil, err), newcomm)
	})
}

// groupOf returns the group of a handle, which can be one of c's processes.
func (c *communicator) groupOf(handle uintptr) (*processes, error) {
	g, err := groupOf(handle)
	if err == nil {
		err = g.from.mixes(c.origin())
	}
	if err != nil {
		return nil, err
	}
	return g, nil
}

// ofGroup returns the error of a call with a group: invalid, if that is one, else err, of a class for groups where a member
// is the error.
func ofGroup(invalid, err error) error {
	if invalid == nil && errors.Is(err, mpilib.ErrRank) {
		return failure(errGroup, "%v", err)
	}
	return errors.Join(invalid, err)
}

// CommIdup starts a CommDup.
func CommIdup(comm, newcomm, request uintptr) int32 {
	return startDup("MPI_Comm_idup", comm, infoNull, newcomm, request)
}

// CommIdupWithInfo starts a CommDupWithInfo.
func CommIdupWithInfo(comm, info, newcomm, request uintptr) int32 {
	return startDup("MPI_Comm_idup_with_info", comm, info, newcomm, request)
}

// startDup stores the handle of the duplicate at once: the program may not use it before the request is complete.
func startDup(call string, comm, info, newcomm, out uintptr) int32 {
	return onComm(call, comm, func(c *communicator) error {
		hints, err := infoOf(info)
		if err != nil {
			return err
		}
		handle, handler := comms.Add(new(communicator)), c.handler.Load()
		store(newcomm, handle)
		once := c.IdupWithInfo(background, hints).Request(func(made *mpilib.Comm, err error) {
			if err != nil {
				comms.Remove(handle)
				return
			}
			comms.Put(handle, newCommunicator(made, handle, handler, c.session))
		})
		store(out, requests.Add(&request{comm: c, once: once}))
		return nil
	})
}

// IntercommCreate joins two groups (MPI-5.0, section 7.6.2). peer_comm and remote_leader count at the leader only.
func IntercommCreate(local uintptr, leader int32, peer uintptr, remoteLeader, tag int32, newcomm uintptr) int32 {
	return onComm("MPI_Intercomm_create", local, func(c *communicator) error {
		var invalid error
		var between *mpilib.Comm
		if int(leader) == c.Rank() {
			var p *communicator
			if p, invalid = commOf(peer); invalid == nil {
				between = p.Comm
			}
		}
		made, err := mpilib.IntercommCreate(background, c.Comm, int(leader), between, int(remoteLeader), tagOf(tag))
		return c.create(made, errors.Join(invalid, err), newcomm)
	})
}

// IntercommMerge makes an intracommunicator of both groups.
func IntercommMerge(intercomm uintptr, high int32, newcomm uintptr) int32 {
	return onComm("MPI_Intercomm_merge", intercomm, func(c *communicator) error {
		made, err := c.Merge(background, high != 0)
		return c.create(made, err, newcomm)
	})
}

// CommGetParent returns what a process that MPI_Comm_spawn has started shares with those that called it: MPI_COMM_NULL, as
// there are no such processes.
func CommGetParent(parent uintptr) int32 {
	store(parent, commNull)
	return success
}

// withoutComm makes a call that needs no communicator, but a group and the session that it is from: its errors go to the handler of
// the communicator that it makes.
func withoutComm(call string, group, tag, info, handler, newcomm uintptr, f func(s *mpilib.Session, g *mpilib.Group, tag string, hints *mpilib.Info) (*mpilib.Comm, error)) int32 {
	h, err := errhandlerOf(handler, commErrors)
	if err == nil && !isMember.Load() {
		err = failure(errOther, "MPI is not running")
	}
	if err != nil {
		return onWorld(call, err)
	}
	g, invalidGroup := groupOf(group)
	text, invalidTag := loadText(tag, maxStringTag, errArg)
	hints, invalidInfo := infoOf(info)
	if err = errors.Join(invalidGroup, invalidTag, invalidInfo); err == nil {
		var made *mpilib.Comm
		if made, err = f(g.from.access(), g.Group, text, hints); err == nil {
			giveComm(made, h, g.from.session, newcomm)
			return success
		}
	}
	return h.result(call, commNull, err)
}

// CommCreateFromGroup is CommCreateGroup without a communicator (MPI-5.0, section 7.4.2).
func CommCreateFromGroup(group, tag, info, handler, newcomm uintptr) int32 {
	return withoutComm("MPI_Comm_create_from_group", group, tag, info, handler, newcomm, func(s *mpilib.Session, g *mpilib.Group, tag string, hints *mpilib.Info) (*mpilib.Comm, error) {
		return s.CommFromGroup(background, g, tag, hints)
	})
}

// IntercommCreateFromGroups joins two groups without a communicator of both (MPI-5.0, section 7.6.2): the local groups make
// one each, and their leaders one of two, under the same tag.
func IntercommCreateFromGroups(localGroup uintptr, localLeader int32, remoteGroup uintptr, remoteLeader int32, tag, info, handler, newcomm uintptr) int32 {
	return withoutComm("MPI_Intercomm_create_from_groups", localGroup, tag, info, handler, newcomm, func(s *mpilib.Session, mine *mpilib.Group, tag string, hints *mpilib.Info) (*mpilib.Comm, error) {
		local, err := s.CommFromGroup(background, mine, tag, hints)
		if err != nil || local == nil {
			return nil, err
		}
		defer local.Free()
		var invalid error
		var between *mpilib.Comm
		other := 0
		if int(localLeader) == local.Rank() {
			if between, invalid = leaders(s, mine, int(localLeader), remoteGroup, int(remoteLeader), tag); invalid == nil {
				other = 1 - between.Rank()
				defer between.Free()
			}
		}
		made, err := mpilib.IntercommCreate(background, local, int(localLeader), between, other, 0)
		if err != nil {
			return nil, errors.Join(invalid, err)
		}
		return made, made.SetInfo(hints)
	})
}

// leaders makes a communicator of the two leaders.
func leaders(s *mpilib.Session, mine *mpilib.Group, leader int, remote uintptr, remoteLeader int, tag string) (*mpilib.Comm, error) {
	theirs, err := groupOf(remote)
	if err != nil {
		return nil, err
	}
	first, err := mine.Incl([]int{leader})
	if err != nil {
		return nil, err
	}
	second, err := theirs.Incl([]int{remoteLeader})
	if err != nil {
		return nil, err
	}
	if first.WorldRank(0) > second.WorldRank(0) { // on both sides the same order
		first, second = second, first
	}
	both := first.Union(second)
	if both.Size() < 2 {
		return nil, failure(errGroup, "the groups have the same leader")
	}
	return s.CommFromGroup(background, both, tag+" of the leaders", nil)
}

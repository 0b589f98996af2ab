package core

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/isthmus-grid/isthmus/cabi/core/handles"
	"github.com/isthmus-grid/isthmus/mpilib"
)

// session is what the handle of a session names (MPI-5.0, section 11.3).
type session struct {
	*mpilib.Session
	handle  uintptr
	handler atomic.Pointer[errhandler]
	buffers buffers
}

var sessions handles.Table[*session]

// access is what communicators are created by: the session, unless they are none of its. Then it is one that nothing else uses.
func (o origin) access() *mpilib.Session {
	if o.session != nil && o.world == world {
		return o.session.Session
	}
	return cmp.Or(o.world, world).NewSession()
}

// result passes an error to the handler of s.
func (s *session) result(call string, err error) int32 {
	if err == nil {
		return success
	}
	return s.handler.Load().result(call, s.handle, err)
}

// onSession makes a call on a session.
func onSession(call string, handle uintptr, f func(s *session) error) int32 {
	s, ok := sessions.Get(handle)
	if !ok {
		return onWorld(call, failure(errSession, "%#x is no session", handle))
	}
	return s.result(call, f(s))
}

// SessionInit opens a session. Whatever its info says, any number of threads may use it.
func SessionInit(info, handler, out uintptr) int32 {
	const call = "MPI_Session_init"
	h, err := errhandlerOf(handler, sessionErrors)
	if err != nil {
		return onWorld(call, err)
	}
	if _, err = infoOf(info); err == nil {
		err = openSession()
	}
	if err != nil {
		return h.result(call, sessionNull, err)
	}
	s := &session{Session: world.NewSession()}
	s.handler.Store(h)
	s.handle = sessions.Add(s)
	store(out, s.handle)
	return success
}

// openSession joins the world if nothing has.
func openSession() error {
	process.Lock()
	defer process.Unlock()
	err := process.Open()
	if err == nil {
		if err = join(); err != nil {
			process.Close()
		}
	}
	changed()
	return err
}

// SessionFinalize closes a session, when all its communicators are freed.
func SessionFinalize(address uintptr) int32 {
	return onSession("MPI_Session_finalize", load[uintptr](address), func(s *session) error {
		s.buffers.flush()
		if err := s.Finalize(background); err != nil {
			return err
		}
		sessions.Remove(s.handle)
		store(address, sessionNull)
		return closeSession()
	})
}

// closeSession leaves the world if nothing can follow that needs it.
func closeSession() (err error) {
	process.Lock()
	defer process.Unlock()
	if process.Close(); process.IsOver() {
		err = leave()
	}
	changed()
	return err
}

// SessionGetInfo returns a session's hints in a new info.
func SessionGetInfo(handle, info uintptr) int32 {
	return onSession("MPI_Session_get_info", handle, func(*session) error {
		return giveInfo(info, "thread_level", "MPI_THREAD_MULTIPLE")
	})
}

// giveInfo stores the handle of a new info with some keys and values.
func giveInfo(out uintptr, pairs ...string) error {
	made, err := mpilib.NewInfo(pairs...)
	if err == nil {
		store(out, infos.Add(made))
	}
	return err
}

// psets are the process sets that sessions list: those of a site and a node are left out, as finding their processes takes all
// processes of the world, and what is done with a listed set is local.
func (s *session) psets() []string {
	return slices.DeleteFunc(s.Psets(), func(name string) bool { return name == mpilib.PsetSite || name == mpilib.PsetNode })
}

// pset reads the name of a process set. It is known in upper and lower case; ok reports whether it is.
func (s *session) pset(address uintptr) (name string, ok bool, err error) {
	name, err = loadText(address, maxPsetName, errArg)
	all := s.Psets()
	i := slices.IndexFunc(all, func(known string) bool { return strings.EqualFold(known, name) })
	if err != nil || i < 0 {
		return name, false, err
	}
	return all[i], true, nil
}

// SessionGetNumPsets returns how many process sets contain the caller.
func SessionGetNumPsets(handle, _, number uintptr) int32 {
	return onSession("MPI_Session_get_num_psets", handle, func(s *session) error {
		store(number, int32(len(s.psets())))
		return nil
	})
}

// SessionGetNthPset returns the name of one, cut to what length has, and there the bytes that it takes with its zero. With length 0
// it returns these only.
func SessionGetNthPset(handle, _ uintptr, n int32, length, name uintptr) int32 {
	return onSession("MPI_Session_get_nth_pset", handle, func(s *session) error {
		all := s.psets()
		if n < 0 || int(n) >= len(all) {
			return failure(errArg, "there is no process set %d of %d", n, len(all))
		}
		if room := load[int32](length); room > 0 {
			copyText(name, all[n], int(room))
		}
		store(length, int32(len(all[n])+1))
		return nil
	})
}

// SessionGetPsetInfo returns how many processes a set has, in a new info.
func SessionGetPsetInfo(handle, name, info uintptr) int32 {
	return onSession("MPI_Session_get_pset_info", handle, func(s *session) error {
		pset, ok, err := s.pset(name)
		if err == nil && !ok {
			err = failure(errArg, "there is no process set %q", pset)
		}
		if err != nil {
			return err
		}
		g, err := s.Group(background, pset)
		if err != nil {
			return err
		}
		return giveInfo(info, "mpi_size", strconv.Itoa(g.Size()))
	})
}

// GroupFromSessionPset returns the group of a process set; MPI_GROUP_NULL where there is no such set (MPI-5.0, section 7.3.2).
func GroupFromSessionPset(handle, name, newgroup uintptr) int32 {
	return onSession("MPI_Group_from_session_pset", handle, func(s *session) error {
		store(newgroup, groupNull)
		pset, ok, err := s.pset(name)
		if err != nil || !ok {
			return err
		}
		g, err := s.Group(background, pset)
		if err == nil {
			giveGroup(g, origin{world, s}, newgroup)
		}
		return err
	})
}

// SessionCreateErrhandler makes an error handler of sessions, also before there is one.
func SessionCreateErrhandler(function, caller, errhandle uintptr) int32 {
	return createErrhandler("MPI_Session_create_errhandler", function, caller, sessionErrors, errhandle)
}

// SessionSetErrhandler sets what happens with errors of a session.
func SessionSetErrhandler(handle, errhandle uintptr) int32 {
	return onSession("MPI_Session_set_errhandler", handle, func(s *session) error {
		h, err := errhandlerOf(errhandle, sessionErrors)
		if err == nil {
			s.handler.Store(h)
		}
		return err
	})
}

// SessionGetErrhandler returns it.
func SessionGetErrhandler(handle, errhandle uintptr) int32 {
	return onSession("MPI_Session_get_errhandler", handle, func(s *session) error {
		store(errhandle, s.handler.Load().give())
		return nil
	})
}

// SessionCallErrhandler calls the error handler of a session with a code.
func SessionCallErrhandler(handle uintptr, code int32) int32 {
	const call = "MPI_Session_call_errhandler"
	return onSession(call, handle, func(s *session) error { return callErrhandler(call, code, s.result) })
}

// SessionAttachBuffer is BufferAttach for the messages of a session's communicators.
func SessionAttachBuffer(handle, memory uintptr, size int64) int32 {
	return onSession("MPI_Session_attach_buffer", handle, func(s *session) error { return s.buffers.attach(memory, size) })
}

// SessionDetachBuffer is its BufferDetach.
func SessionDetachBuffer(handle, address, size uintptr) int32 {
	return onSession("MPI_Session_detach_buffer", handle, func(s *session) error { return s.buffers.detach(address, size) })
}

// SessionFlushBuffer is its BufferFlush.
func SessionFlushBuffer(handle uintptr) int32 {
	return onSession("MPI_Session_flush_buffer", handle, func(s *session) error {
		s.buffers.flush()
		return nil
	})
}

// SessionIflushBuffer is its BufferIflush.
func SessionIflushBuffer(handle, request uintptr) int32 {
	const call = "MPI_Session_iflush_buffer"
	return onSession(call, handle, func(s *session) error {
		s.buffers.iflush(nil, call, request)
		return nil
	})
}

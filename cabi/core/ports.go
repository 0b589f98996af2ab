package core

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/isthmus-grid/isthmus/cabi/commjoin"
	"github.com/isthmus-grid/isthmus/mpilib"
)

// onProcess makes a call that has no object, as a process of the world.
func onProcess(call string, f func(w *mpilib.World) error) int32 {
	if !isMember.Load() {
		return onWorld(call, failure(errOther, "MPI is not running"))
	}
	return onWorld(call, f(world))
}

// OpenPort opens a port, where processes of this and other jobs can connect to the caller (MPI-5.0, section 11.9.2).
func OpenPort(info, out uintptr) int32 {
	return onProcess("MPI_Open_port", func(w *mpilib.World) error {
		if _, err := infoOf(info); err != nil {
			return err
		}
		port, err := w.OpenPort(background)
		if err == nil {
			copyText(out, port, maxPortName)
		}
		return err
	})
}

// ClosePort closes it.
func ClosePort(port uintptr) int32 {
	return onProcess("MPI_Close_port", func(w *mpilib.World) error {
		text, err := loadText(port, maxPortName, errPort)
		if err != nil {
			return err
		}
		return w.ClosePort(text)
	})
}

// onName makes a call with a service name and an info (MPI-5.0, section 11.9.4).
func onName(call string, service, info uintptr, f func(w *mpilib.World, service string) error) int32 {
	return onProcess(call, func(w *mpilib.World) error {
		if _, err := infoOf(info); err != nil {
			return err
		}
		name, err := loadText(service, maxPortName, errName)
		if err != nil {
			return err
		}
		return f(w, name)
	})
}

// PublishName publishes a port under a name, which belongs to one process of the grid at a time.
func PublishName(service, info, port uintptr) int32 {
	return onName("MPI_Publish_name", service, info, func(w *mpilib.World, name string) error {
		text, err := loadText(port, maxPortName, errPort)
		if err != nil {
			return err
		}
		return w.PublishName(background, name, text)
	})
}

// UnpublishName withdraws a name, whatever its port.
func UnpublishName(service, info, _ uintptr) int32 {
	return onName("MPI_Unpublish_name", service, info, func(w *mpilib.World, name string) error { return w.UnpublishName(background, name) })
}

// LookupName returns the port of a name.
func LookupName(service, info, port uintptr) int32 {
	return onName("MPI_Lookup_name", service, info, func(w *mpilib.World, name string) error {
		text, err := w.LookupName(background, name)
		if err == nil {
			copyText(port, text, maxPortName)
		}
		return err
	})
}

// joinJobs is CommAccept or CommConnect. The port counts at the root only.
func joinJobs(call string, join func(c *mpilib.Comm, port string, root int) (*mpilib.Comm, error), port uintptr, root int32, comm, newcomm uintptr) int32 {
	return onComm(call, comm, func(c *communicator) error {
		if c.IsInter() {
			return failure(errComm, "%s is an intercommunicator", c.Name())
		}
		var text string
		if c.isRoot(root) {
			text, _ = loadText(port, maxPortName, errPort) // none is no port: the call fails on all processes
		}
		made, err := join(c.Comm, text, rankOf(root))
		return c.create(made, err, newcomm)
	})
}

// CommAccept waits for another group of processes to connect to a port (MPI-5.0, section 11.9.2).
func CommAccept(port, _ uintptr, root int32, comm, newcomm uintptr) int32 {
	return joinJobs("MPI_Comm_accept", func(c *mpilib.Comm, port string, root int) (*mpilib.Comm, error) {
		return c.Accept(background, port, root)
	}, port, root, comm, newcomm)
}

// CommConnect connects to a port (MPI-5.0, section 11.9.3).
func CommConnect(port, _ uintptr, root int32, comm, newcomm uintptr) int32 {
	return joinJobs("MPI_Comm_connect", func(c *mpilib.Comm, port string, root int) (*mpilib.Comm, error) {
		return c.Connect(background, port, root)
	}, port, root, comm, newcomm)
}

// CommJoin makes an intercommunicator of the two processes at the ends of a socket; MPI_COMM_NULL where they cannot reach each
// other (MPI-5.0, section 11.10.5).
func CommJoin(fd int32, intercomm uintptr) int32 {
	return onComm("MPI_Comm_join", commSelf, func(c *communicator) error {
		own, err := unix.Dup(int(fd)) // a file closes its descriptor at the end
		if err != nil {
			return failure(errArg, "descriptor %d: %v", fd, err)
		}
		socket := os.NewFile(uintptr(own), "socket")
		defer socket.Close()
		made, err := commjoin.Join(socket, c.World())
		return c.create(made, err, intercomm)
	})
}

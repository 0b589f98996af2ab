package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/isthmus-grid/isthmus/internal/carrier"
)

// This file starts a successor: a new process of the program as installed now, with the same
// command line, which gets copies of the listening sockets. Clients that connect meanwhile wait in
// the kernel; none is refused.
//
//	this process                          the successor
//	SIGUSR2: start it ------------------> settings, sockets
//	     <------------------------------- ready
//	accept no more; LetGo --------------> accept
//	serve what is there, and what         Return: a connection that only the
//	  is Returned; end when idle <------- predecessor can serve
//
// A successor that does not become ready is killed, and nothing has changed.

// handoverEnv holds, as JSON, the names of the sockets that a successor inherits from firstSocket
// on.
const handoverEnv = "ISTHMUS_HANDOVER"

// Descriptors of a successor.
const (
	readyPipe         = 3 // to which it writes the line "ready"
	predecessorSocket = 4 // its end of the socket to its predecessor
	firstSocket       = 5
)

const (
	startTimeout = 20 * time.Second       // for a successor to be ready
	letGoTimeout = 10 * time.Second       // for a predecessor to stop accepting
	maxFirst     = 8 << 10                // bytes that were read from a returned connection
	maxReturned  = 64                     // returned connections not received yet; more wait in the kernel
	returnWait   = 500 * time.Millisecond // for room there
)

// socket is a listener or a UDP socket: what can be handed over.
type socket interface {
	syscall.Conn
	Close() error
}

// dup returns a copy of a socket's descriptor. Its File method is unsuitable: passing on the result
// makes the socket blocking, also for this process, which shares the mode.
func dup(s syscall.Conn, name string) (*os.File, error) {
	raw, err := s.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd, dupErr := -1, error(nil)
	err = raw.Control(func(from uintptr) { fd, dupErr = unix.FcntlInt(from, unix.F_DUPFD_CLOEXEC, 0) })
	if err = errors.Join(err, dupErr); err != nil {
		return nil, fmt.Errorf("a copy of the socket %s: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// handover holds the sockets of a process by their names.
type handover struct {
	names []string
	all   map[string]socket
}

// inheritance is what a predecessor passed on.
type inheritance struct {
	mu      sync.Mutex // guards sockets
	sockets map[string]*os.File
	ready   *os.File
	kin     *net.UnixConn
}

// inherit takes over the inheritance of a predecessor; nil without one. It is called once.
func inherit() (*inheritance, error) {
	text := os.Getenv(handoverEnv)
	if text == "" {
		return nil, nil
	}
	os.Unsetenv(handoverEnv) // it describes this process's descriptors only
	var names []string
	if err := json.Unmarshal([]byte(text), &names); err != nil {
		return nil, fmt.Errorf("%s: %w", handoverEnv, err)
	}
	in := &inheritance{sockets: map[string]*os.File{}, ready: os.NewFile(readyPipe, "ready")}
	for i, name := range names {
		syscall.CloseOnExec(firstSocket + i)
		in.sockets[name] = os.NewFile(uintptr(firstSocket+i), name)
	}
	syscall.CloseOnExec(readyPipe)
	var err error
	in.kin, err = unixConn(os.NewFile(predecessorSocket, "predecessor"))
	return in, err
}

func unixConn(f *os.File) (*net.UnixConn, error) {
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("the socket between predecessor and successor: %w", err)
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		c.Close()
		return nil, errors.New("the socket between predecessor and successor is of another kind")
	}
	return u, nil
}

func (in *inheritance) take(name string) *os.File {
	in.mu.Lock()
	defer in.mu.Unlock()
	f := in.sockets[name]
	delete(in.sockets, name)
	return f
}

// begin reports to the predecessor that this process is ready, closes the inherited sockets that it
// did not use, and waits until the predecessor has stopped accepting, or has ended.
func (in *inheritance) begin() error {
	in.mu.Lock()
	for _, f := range in.sockets {
		f.Close()
	}
	clear(in.sockets)
	in.mu.Unlock()
	_, err := in.ready.WriteString("ready\n")
	in.ready.Close()
	if err != nil {
		return fmt.Errorf("the predecessor is gone: %w", err)
	}
	in.kin.SetReadDeadline(time.Now().Add(letGoTimeout))
	if _, err := in.kin.Read(make([]byte, 1)); err != nil && !errors.Is(err, io.EOF) { // if it has ended, it has released everything
		return fmt.Errorf("waited for the predecessor to let go of its sockets: %w", err)
	}
	return nil
}

// Socket returns the socket of that name, which a successor will inherit: that of a predecessor, if
// there is one, or that of the service manager, or else the one that open opens. The name is that
// of a setting and, after a space, the address, so that a successor with another address opens its
// own. S is *net.TCPListener or *net.UDPConn.
func Socket[S socket](ctx context.Context, name string, open func() (S, error)) (S, error) {
	h := HooksOf(ctx)
	var s S
	var err error
	if f := h.inheritedSocket(name); f != nil {
		s, err = socketOf[S](f, "the predecessor's")
	} else if f := h.activated.take(name); f != nil {
		s, err = socketOf[S](f, "the service manager's")
	} else if s, err = open(); err != nil {
		err = h.activated.hint(name, err)
	}
	if err != nil {
		return s, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.sockets.all == nil {
		h.sockets.all = map[string]socket{}
	}
	h.sockets.names = append(h.sockets.names, name)
	h.sockets.all[name] = s
	return s, nil
}

func (h *Hooks) inheritedSocket(name string) *os.File {
	if h.inherited == nil {
		return nil
	}
	return h.inherited.take(name)
}

// A Returned connection was accepted by a successor that cannot serve it.
type Returned struct {
	Conn  *net.TCPConn // owned by the receiver
	First []byte       // bytes read from it already
}

// Return passes a connection to the predecessor, with the bytes read from it, and closes this
// process's copy. It fails, and leaves the connection unchanged, when there is no predecessor any
// more or it does not keep up.
func (h *Hooks) Return(c *net.TCPConn, first []byte) error {
	if h.inherited == nil || len(first) == 0 || len(first) > maxFirst {
		return errors.New("there is no predecessor to return it to")
	}
	f, err := dup(c, "returned")
	if err != nil {
		return err
	}
	defer f.Close()
	kin := h.inherited.kin
	kin.SetWriteDeadline(time.Now().Add(returnWait))
	if _, _, err := kin.WriteMsgUnix(first, syscall.UnixRights(int(f.Fd())), nil); err != nil {
		return fmt.Errorf("returning a connection to the predecessor: %w", err)
	}
	c.Close()
	return nil
}

// Returned delivers the connections that the successor cannot serve. The channel is never closed;
// read it until Serve's work is done.
func (h *Hooks) Returned() <-chan Returned { return h.returned }

// A successor is a process that takes over.
type successor struct {
	cmd   *exec.Cmd
	kin   *net.UnixConn
	ended chan error // receives its exit error
	ready chan error // receives nil, or why it will not be ready
	work  sync.WaitGroup
}

// startSuccessor starts a successor. Its output goes where this process's does.
func (h *Hooks) startSuccessor() (*successor, error) {
	program, err := exec.LookPath(os.Args[0])
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	names := slices.Clone(h.sockets.names)
	var files []*os.File
	for _, name := range names {
		f, dupErr := dup(h.sockets.all[name], name)
		err = errors.Join(err, dupErr)
		files = append(files, f)
	}
	h.mu.Unlock()
	defer func() {
		for _, f := range files {
			f.Close() // of a nil *os.File, too, which returns a harmless error
		}
	}()
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, errors.New("this daemon has no sockets to hand over; restart it")
	}
	ready, theirReady, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer theirReady.Close()
	syscall.ForkLock.RLock() // no other child may inherit them
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_SEQPACKET, 0)
	if err != nil {
		syscall.ForkLock.RUnlock()
		ready.Close()
		return nil, fmt.Errorf("socketpair: %w", err)
	}
	syscall.CloseOnExec(pair[0])
	syscall.CloseOnExec(pair[1])
	syscall.ForkLock.RUnlock()
	theirKin := os.NewFile(uintptr(pair[1]), "predecessor")
	defer theirKin.Close()
	kin, err := unixConn(os.NewFile(uintptr(pair[0]), "successor"))
	if err != nil {
		ready.Close()
		return nil, err
	}
	list, _ := json.Marshal(names) // strings can always be encoded
	cmd := exec.Command(program, os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), handoverEnv+"="+string(list))
	// A group of its own: a cleanup of this process's group must not end it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.ExtraFiles = append([]*os.File{theirReady, theirKin}, files...)
	if err := cmd.Start(); err != nil {
		ready.Close()
		kin.Close()
		return nil, err
	}
	s := &successor{cmd: cmd, kin: kin, ended: make(chan error, 1), ready: make(chan error, 1)}
	go func() { // ends with the successor, or with this process, which stays its parent
		s.ended <- cmd.Wait()
	}()
	s.work.Go(func() { // ends with the line, the successor or the bound
		defer ready.Close()
		ready.SetReadDeadline(time.Now().Add(startTimeout))
		line := make([]byte, 16)
		n, err := ready.Read(line)
		if err == nil && strings.TrimSpace(string(line[:n])) != "ready" {
			err = fmt.Errorf("it said %q in place of ready", line[:n])
		}
		s.ready <- err
	})
	return s, nil
}

// serveReturns receives the connections that the successor returns, once this process has released
// its sockets. It ends when the successor ends or kin is closed.
func (h *Hooks) serveReturns(ctx context.Context, s *successor) {
	select {
	case <-h.letGo:
	case <-ctx.Done():
		return
	}
	if _, err := s.kin.Write([]byte{1}); err != nil {
		return
	}
	for {
		r, err := receive(s.kin)
		if errors.Is(err, errGone) {
			continue
		}
		if err != nil {
			return
		}
		select {
		case h.returned <- r:
		case <-ctx.Done():
			r.Conn.Close()
			return
		}
	}
}

// errGone means that a returned connection has ended on the way.
var errGone = errors.New("the returned connection has ended")

// receive receives one returned connection.
func receive(kin *net.UnixConn) (Returned, error) {
	first, rights := make([]byte, maxFirst), make([]byte, syscall.CmsgSpace(4))
	n, oob, _, _, err := kin.ReadMsgUnix(first, rights)
	if err != nil {
		return Returned{}, err
	}
	if n == 0 { // end of file on a SOCK_SEQPACKET socket
		return Returned{}, net.ErrClosed
	}
	messages, err := syscall.ParseSocketControlMessage(rights[:oob])
	if err != nil || len(messages) != 1 {
		return Returned{}, fmt.Errorf("a returned connection without its descriptor: %w", err)
	}
	fds, err := syscall.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return Returned{}, fmt.Errorf("a returned connection without its descriptor: %w", err)
	}
	syscall.CloseOnExec(fds[0])
	f := os.NewFile(uintptr(fds[0]), "returned")
	defer f.Close()
	c, err := carrier.FromFile(f)
	if err != nil {
		return Returned{}, fmt.Errorf("%w: %w", errGone, err)
	}
	t, ok := c.(*net.TCPConn)
	if !ok {
		c.Close()
		return Returned{}, fmt.Errorf("a returned connection is a %T", c)
	}
	return Returned{Conn: t, First: first[:n]}, nil
}

package local

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/user"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// sendTimeout bounds a Send to a peer that does not read. The frames of this socket are small and
// rare, so a peer that slow is stuck.
const sendTimeout = 10 * time.Second

// maxDescriptors is the maximum number of descriptors in one message on a Unix socket (SCM_MAX_FD
// on Linux). Receive leaves room for that many, so that surplus descriptors are seen and closed
// here and nothing depends on how the kernel treats those that do not fit.
const maxDescriptors = 253

// Conn sends and receives frames with at most one descriptor each over a stream Unix socket. The
// type of a frame determines whether it carries one: LocalDialled and LocalIncoming do, no other
// does.
type Conn struct {
	c    *net.UnixConn
	send sync.Mutex // held while one frame is written
	oob  []byte     // used only by Receive
}

// NewConn returns a Conn over c, which it owns from then on.
func NewConn(c *net.UnixConn) *Conn {
	return &Conn{c: c, oob: make([]byte, syscall.CmsgSpace(4*maxDescriptors))}
}

// carriesDescriptor reports whether frames of type t carry a descriptor.
func carriesDescriptor(t wire.Type) bool {
	return t == wire.TypeLocalDialled || t == wire.TypeLocalIncoming
}

// Send writes f, and with it the descriptor of socket if f's type carries one; socket is nil
// otherwise. The peer gets a duplicate: the caller keeps ownership of socket. After an error the
// peer may have received part of the frame, so the Conn is closed; except if the peer has closed
// already: then its last frames, which may hold the reason, can still be received, followed by the
// end. Safe for concurrent use.
func (c *Conn) Send(f wire.Frame, socket syscall.Conn) error {
	if carriesDescriptor(f.Type()) != (socket != nil) {
		return fmt.Errorf("local: send %v: descriptor given: %t, must be: %t", f.Type(), socket != nil, socket == nil)
	}
	b := wire.Append(nil, f)
	c.send.Lock()
	defer c.send.Unlock()
	var err error
	if socket == nil {
		err = c.write(b, nil)
	} else {
		err = c.writeWith(b, socket)
	}
	if err != nil {
		if !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
			c.c.Close()
		}
		return fmt.Errorf("local: send %v: %w", f.Type(), err)
	}
	return nil
}

// writeWith writes b while the socket's descriptor is held open.
func (c *Conn) writeWith(b []byte, socket syscall.Conn) error {
	raw, err := socket.SyscallConn()
	if err != nil {
		return fmt.Errorf("descriptor: %w", err)
	}
	var inner error
	if err := raw.Control(func(fd uintptr) { inner = c.write(b, syscall.UnixRights(int(fd))) }); err != nil {
		return fmt.Errorf("descriptor: %w", err)
	}
	return inner
}

// write sends b; rights go with its first byte and so exactly once, also when the kernel accepts b
// in parts.
func (c *Conn) write(b, rights []byte) error {
	c.c.SetWriteDeadline(time.Now().Add(sendTimeout))
	for len(b) > 0 {
		n, _, err := c.c.WriteMsgUnix(b, rights, nil)
		if err != nil {
			return err
		}
		b, rights = b[n:], nil
	}
	return nil
}

// Receive returns the next frame and the descriptor that came with it, nil for frames that carry
// none. The caller owns the file. An end of input between frames is io.EOF. A missing or surplus
// descriptor is wire.ErrMalformed, and Receive closes any that arrived; after any error the Conn is
// unusable. It skips unknown optional frames, as wire.Read does. One goroutine at a time.
func (c *Conn) Receive() (wire.Frame, *os.File, error) {
	for {
		f, got, err := c.receive()
		if err != nil {
			closeAll(got)
			return nil, nil, err
		}
		if f == nil {
			closeAll(got)
			continue
		}
		want := 0
		if carriesDescriptor(f.Type()) {
			want = 1
		}
		if len(got) != want {
			closeAll(got)
			return nil, nil, fmt.Errorf("%w: %v came with %d descriptors, want %d", wire.ErrMalformed, f.Type(), len(got), want)
		}
		if want == 0 {
			return f, nil, nil
		}
		return f, os.NewFile(uintptr(got[0]), f.Type().String()), nil
	}
}

// receive reads exactly one frame, so that every descriptor it receives belongs to that frame. The
// caller owns got, also with an error. A nil frame is an unknown one that may be skipped.
func (c *Conn) receive() (f wire.Frame, got []int, err error) {
	var buf [wire.HeaderLen + wire.MaxBody]byte
	if got, err = c.readFull(buf[:wire.HeaderLen], got); err != nil {
		return nil, got, err
	}
	h, err := wire.ParseHeader(buf[:wire.HeaderLen])
	if err != nil {
		return nil, got, err
	}
	body := buf[wire.HeaderLen : wire.HeaderLen+h.Length]
	if got, err = c.readFull(body, got); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, got, err
	}
	f, err = wire.DecodeBody(h.Type, body)
	if errors.Is(err, wire.ErrType) && h.Type&wire.OptionalBit != 0 {
		return nil, got, nil
	}
	return f, got, err
}

// readFull fills b and appends the received descriptors to got. It stops at the first surplus one.
func (c *Conn) readFull(b []byte, got []int) ([]int, error) {
	for read := 0; read < len(b); {
		n, oobn, flags, _, err := c.c.ReadMsgUnix(b[read:], c.oob)
		if oobn > 0 {
			var perr error
			if got, perr = appendDescriptors(got, c.oob[:oobn]); err == nil {
				err = perr
			}
		}
		switch {
		case err == nil && flags&syscall.MSG_CTRUNC != 0:
			err = fmt.Errorf("%w: descriptors were lost on the way; is this process's limit of open files reached?", wire.ErrMalformed)
		case err == nil && len(got) > 1:
			err = fmt.Errorf("%w: frame with %d descriptors, at most 1 is allowed", wire.ErrMalformed, len(got))
		case err == nil && n == 0:
			err = io.EOF
		case errors.Is(err, io.EOF):
			err = io.EOF
		}
		if err == io.EOF && read > 0 {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return got, err
		}
		read += n
	}
	return got, nil
}

// appendDescriptors extracts the descriptors from a control message.
func appendDescriptors(got []int, oob []byte) ([]int, error) {
	msgs, err := syscall.ParseSocketControlMessage(oob)
	if err != nil {
		return got, fmt.Errorf("%w: control message: %w", wire.ErrMalformed, err)
	}
	for _, m := range msgs {
		if m.Header.Level != syscall.SOL_SOCKET || m.Header.Type != syscall.SCM_RIGHTS {
			continue
		}
		fds, err := syscall.ParseUnixRights(&m)
		if err != nil {
			return got, fmt.Errorf("%w: descriptors: %w", wire.ErrMalformed, err)
		}
		got = append(got, fds...)
	}
	return got, nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		syscall.Close(fd)
	}
}

// SetReadDeadline bounds later calls of Receive, as net.Conn's does.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.c.SetReadDeadline(t) }

// Close closes the socket; a pending Receive or Send fails with net.ErrClosed.
func (c *Conn) Close() error { return c.c.Close() }

// Cred identifies the process at the other end of a Unix socket, as the kernel recorded it when the
// socket was connected.
type Cred struct {
	UID, GID uint32
	PID      int32 // 0 if the system does not provide it
}

// Account returns the name of an account of this host, or its number if it has no name or one that
// overlay.CheckAccount refuses.
func Account(uid uint32) string {
	id := strconv.FormatUint(uint64(uid), 10)
	if u, err := user.LookupId(id); err == nil && overlay.CheckAccount(u.Username) == nil {
		return u.Username
	}
	return id
}

// PeerCred returns the credentials of the process that connected, or that listened, at the other
// end.
func (c *Conn) PeerCred() (Cred, error) { return PeerCred(c.c) }

// PeerCred is Conn.PeerCred for a socket that has no Conn yet.
func PeerCred(c *net.UnixConn) (Cred, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return Cred{}, fmt.Errorf("local: peer credentials: %w", err)
	}
	var cred Cred
	var inner error
	err = raw.Control(func(fd uintptr) { cred, inner = peerCred(int(fd)) })
	if err = errors.Join(err, inner); err != nil {
		return Cred{}, fmt.Errorf("local: peer credentials: %w", err)
	}
	return cred, nil
}

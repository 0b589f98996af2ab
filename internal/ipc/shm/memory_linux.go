package shm

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxCopied bounds the bytes that one system call copies. The runtime is not notified of the call,
// because that costs more than a small copy, so the bound limits how long a garbage collection
// waits: some tens of microseconds.
const maxCopied = 128 << 10

// OpenMemory verifies that this process may read the memory of the one that made the descriptor, by
// reading the nonce there. Where the system forbids it (another user, Yama's ptrace_scope, seccomp)
// it fails, and messages go through the segment.
func OpenMemory(o Descriptor) (*Memory, error) {
	if err := sameMachine(o); err != nil {
		return nil, fmt.Errorf("shm.OpenMemory: %w", err)
	}
	m := &Memory{pid: int(o.PID), proof: o.Proof, nonce: o.Nonce}
	if err := m.Read(nil, 0); err != nil {
		return nil, fmt.Errorf("shm.OpenMemory: %w", err)
	}
	return m, nil
}

// Read fills local with the peer's memory at address addr. Each piece is read together with the
// peer's nonce, so that nothing is accepted from another process that reuses the number of one that
// ended; in that case, and when the peer has no such memory, part of local may have been
// overwritten. The peer must not modify the memory before it learns that the read is over.
func (m *Memory) Read(local []byte, addr uint64) error {
	return m.pieces("read", local, addr, m.readPiece)
}

// Write is the reverse of Read: it copies local to the peer's memory at address addr, or part of it
// when it fails. It reads the nonce directly before each piece. When the peer reads one half of a
// message while this process writes the other, a large message takes little more than half as long.
func (m *Memory) Write(local []byte, addr uint64) error {
	return m.pieces("write", local, addr, m.writePiece)
}

func (m *Memory) pieces(op string, local []byte, addr uint64, piece func([]byte, uint64) error) error {
	for {
		n := min(len(local), maxCopied)
		err := error(nil)
		if addr+uint64(n) < addr {
			err = errNoMemory
		} else {
			err = piece(local[:n], addr)
		}
		if err != nil {
			return fmt.Errorf("shm: %s %d bytes at %#x of process %d: %w", op, n, addr, m.pid, err)
		}
		if local, addr = local[n:], addr+uint64(n); len(local) == 0 {
			return nil
		}
	}
}

var errNoMemory = errors.New("the peer has no such memory")

// remote is an iovec of another process: its address is not a pointer here.
type remote struct{ base, len uintptr }

// readPiece performs one system call of Read. It repeats the call if the kernel stopped early.
func (m *Memory) readPiece(local []byte, addr uint64) error {
	for {
		var nonce [16]byte
		to := [2]unix.Iovec{{Base: &nonce[0]}, {}}
		to[0].SetLen(len(nonce))
		from := [2]remote{{uintptr(m.proof), uintptr(len(nonce))}, {uintptr(addr), uintptr(len(local))}}
		vecs := 1
		if len(local) > 0 {
			to[1].Base = &local[0]
			to[1].SetLen(len(local))
			vecs = 2
		}
		n, errno := m.call(unix.SYS_PROCESS_VM_READV, &to, &from, vecs)
		got := n - len(nonce)
		switch {
		case errno == unix.EINTR:
			continue
		case errno == unix.EFAULT:
			return fmt.Errorf("no nonce where it was: %w", ErrOtherProcess)
		case errno != 0:
			return failed(errno)
		case got < 0 || nonce != m.nonce:
			return fmt.Errorf("another nonce than offered: %w", ErrOtherProcess)
		case got == 0 && len(local) > 0:
			return errNoMemory
		case got == len(local):
			return nil
		}
		local, addr = local[got:], addr+uint64(got)
	}
}

// writePiece performs one system call of Write.
func (m *Memory) writePiece(local []byte, addr uint64) error {
	for {
		if err := m.readPiece(nil, 0); err != nil {
			return err
		}
		if len(local) == 0 {
			return nil
		}
		from := [2]unix.Iovec{{Base: &local[0]}, {}}
		from[0].SetLen(len(local))
		to := [2]remote{{uintptr(addr), uintptr(len(local))}, {}}
		n, errno := m.call(unix.SYS_PROCESS_VM_WRITEV, &from, &to, 1)
		switch {
		case errno == unix.EINTR:
			continue
		case errno == unix.EFAULT || errno == 0 && n == 0:
			return errNoMemory
		case errno != 0:
			return failed(errno)
		case n == len(local):
			return nil
		}
		local, addr = local[n:], addr+uint64(n)
	}
}

func (m *Memory) call(number uintptr, here *[2]unix.Iovec, there *[2]remote, vecs int) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall6(number, uintptr(m.pid),
		uintptr(unsafe.Pointer(here)), uintptr(vecs), uintptr(unsafe.Pointer(there)), uintptr(vecs), 0)
	runtime.KeepAlive(here[0].Base)
	runtime.KeepAlive(here[1].Base)
	return int(n), errno
}

func failed(errno unix.Errno) error {
	switch errno {
	case unix.ESRCH:
		return fmt.Errorf("it has ended: %w", ErrOtherProcess)
	case unix.EPERM:
		return fmt.Errorf("%w: the system does not let this process touch its memory", errno)
	default:
		return errno
	}
}

package shm

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mostCopied is how many bytes one system call copies. The runtime is not told
// of the call, for that costs more than a small copy, so it bounds how long a
// collection waits: some tens of microseconds.
const mostCopied = 128 << 10

// OpenMemory proves that this process may read the memory of the one that made the
// offer, by reading the nonce there. Where the system forbids it (another
// user, Yama's ptrace_scope, seccomp) it fails, and messages go through the segment.
func OpenMemory(o Offer) (*Memory, error) {
	if err := near(o); err != nil {
		return nil, fmt.Errorf("shm.OpenMemory: %w", err)
	}
	m := &Memory{pid: int(o.PID), proof: o.Proof, nonce: o.Nonce}
	if err := m.Read(nil, 0); err != nil {
		return nil, fmt.Errorf("shm.OpenMemory: %w", err)
	}
	return m, nil
}

// Read fills local with what the peer has at address addr. Each piece is read together with the peer's
// nonce, so nothing is taken from another process that came to
// have the number of one that ended; then, and when the peer has no such memory, part
// of local may have been overwritten. The peer must leave the memory alone
// until it is told that the read is over.
func (m *Memory) Read(local []byte, addr uint64) error {
	for {
		n := min(len(local), mostCopied)
		if addr+uint64(n) < addr {
			return fmt.Errorf("shm: read %d bytes at %#x of process %d: no such address", n, addr, m.pid)
		}
		if err := m.piece(local[:n], addr); err != nil {
			return fmt.Errorf("shm: read %d bytes at %#x of process %d: %w", n, addr, m.pid, err)
		}
		if local, addr = local[n:], addr+uint64(n); len(local) == 0 {
			return nil
		}
	}
}

// remote is an iovec of another process: its address is no pointer here.
type remote struct{ base, len uintptr }

// piece is one system call's part of Read. It is repeated where the kernel
// stopped early.
func (m *Memory) piece(local []byte, addr uint64) error {
	for {
		var nonce [16]byte
		to := [2]unix.Iovec{{Base: &nonce[0]}, {}}
		to[0].SetLen(len(nonce))
		from := [2]remote{{uintptr(m.proof), uintptr(len(nonce))}, {uintptr(addr), uintptr(len(local))}}
		vecs := uintptr(1)
		if len(local) > 0 {
			to[1].Base = &local[0]
			to[1].SetLen(len(local))
			vecs = 2
		}
		n, _, errno := unix.RawSyscall6(unix.SYS_PROCESS_VM_READV, uintptr(m.pid),
			uintptr(unsafe.Pointer(&to)), vecs, uintptr(unsafe.Pointer(&from)), vecs, 0)
		runtime.KeepAlive(&nonce)
		runtime.KeepAlive(local)
		got := int(n) - len(nonce)
		switch {
		case errno == unix.EINTR:
			continue
		case errno == unix.ESRCH:
			return fmt.Errorf("it has ended: %w", ErrOtherProcess)
		case errno == unix.EPERM:
			return fmt.Errorf("%w: the system does not let this process read it", errno)
		case errno == unix.EFAULT:
			return fmt.Errorf("no nonce where it was: %w", ErrOtherProcess)
		case errno != 0:
			return errno
		case got < 0 || nonce != m.nonce:
			return fmt.Errorf("another nonce than offered: %w", ErrOtherProcess)
		case got == 0 && len(local) > 0:
			return errors.New("the peer has no such memory")
		case got == len(local):
			return nil
		}
		local, addr = local[got:], addr+uint64(got)
	}
}

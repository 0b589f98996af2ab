package shm

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// seals prevent a peer from removing memory under a reader, which would cause a bus error.
const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// Create makes a segment with data bytes of payload in each direction: DefaultData if 0, otherwise
// a multiple of 4096 from MinData to MaxData. Memory is allocated page by page at the first use.
func Create(data int) (*Segment, error) {
	size, err := sizeOf(data)
	if err != nil {
		return nil, fmt.Errorf("shm.Create: %w", err)
	}
	s, err := createFile(size, ringsLayout)
	if err != nil {
		return nil, fmt.Errorf("shm.Create: %w", err)
	}
	return s, nil
}

// createFile makes a segment of any size.
func createFile(size int, layout uint32) (*Segment, error) {
	fd, err := unix.MemfdCreate("isthmus", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	s, err := create(fd, size, layout)
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return s, nil
}

func create(fd, size int, layout uint32) (*Segment, error) {
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		return nil, fmt.Errorf("%d bytes: %w", size, err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		return nil, fmt.Errorf("seal: %w", err)
	}
	s, err := newSegment(fd, size)
	if err != nil {
		return nil, err
	}
	s.fd, s.creator, s.offer.FD = fd, true, int32(fd)
	*s.head() = segmentHead{magic: magic, version: layout, size: uint64(size), nonce: s.offer.Nonce}
	return s, nil
}

// newSegment maps fd and sets what both sides have.
func newSegment(fd, size int) (*Segment, error) {
	o, err := describeProcess()
	if err != nil {
		return nil, err
	}
	s := &Segment{fd: -1, offer: o, proof: new([16]byte)}
	rand.Read(s.proof[:]) // never fails
	s.offer.FD, s.offer.Size, s.offer.Nonce = -1, uint64(size), *s.proof
	s.offer.Proof = uint64(uintptr(unsafe.Pointer(s.proof)))
	s.mem, err = unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes: %w", size, err)
	}
	return s, nil
}

// Open maps the segment that a peer of this machine described. The caller then tells the peer,
// which can call CloseFile. It fails, with ErrElsewhere, if the peer is not on this machine and in
// this PID namespace, and if the descriptor is not of a segment that this process may open: the two
// then use only their link.
func Open(o Descriptor) (*Segment, error) {
	if err := checkSize(o.Size); err != nil {
		return nil, fmt.Errorf("shm.Open: %w", err)
	}
	s, err := openFile(o, ringsLayout)
	if err != nil {
		return nil, fmt.Errorf("shm.Open: %w", err)
	}
	return s, nil
}

// openFile maps a segment of any size.
func openFile(o Descriptor, layout uint32) (*Segment, error) {
	if err := sameMachine(o); err != nil {
		return nil, err
	}
	if o.PID <= 0 || o.FD < 0 {
		return nil, fmt.Errorf("descriptor %d of process %d is none", o.FD, o.PID)
	}
	path := fmt.Sprintf("/proc/%d/fd/%d", o.PID, o.FD)
	s, err := open(path, o, layout)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

func open(path string, o Descriptor, layout uint32) (*Segment, error) {
	// Non-blocking, in case it is a pipe instead.
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil, errors.New("no such process or descriptor: the peer closed it or has ended")
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return nil, fmt.Errorf("%w: the peer runs as another user, or is guarded", err)
	case err != nil:
		return nil, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || uint64(st.Size) != o.Size {
		return nil, fmt.Errorf("a file of mode %o and %d bytes, not a segment of %d", st.Mode, st.Size, o.Size)
	}
	if got, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0); err != nil || got&unix.F_SEAL_SHRINK == 0 {
		return nil, errors.New("a file that can shrink, not a segment")
	}
	s, err := newSegment(fd, int(o.Size))
	if err != nil {
		return nil, err
	}
	if err := s.checkHead(o, layout); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// CloseFile closes the creator's descriptor; afterwards the segment can no longer be opened. The
// mappings stay.
func (s *Segment) CloseFile() error {
	if s.fd < 0 {
		return nil
	}
	fd := s.fd
	s.fd = -1
	if err := unix.Close(fd); err != nil {
		return fmt.Errorf("shm: close the segment's file: %w", err)
	}
	return nil
}

// Close unmaps the segment and closes its descriptor, if that is still open. The ends must not be
// in use, nor be used again. A second call does nothing.
func (s *Segment) Close() error {
	err := s.CloseFile()
	if s.mem != nil {
		mem := s.mem
		s.mem = nil
		if e := unix.Munmap(mem); e != nil {
			err = errors.Join(err, fmt.Errorf("shm: unmap: %w", e))
		}
	}
	return err
}

// describeProcess returns a descriptor with the fields about this process.
func describeProcess() (Descriptor, error) {
	o := Descriptor{PID: int32(os.Getpid())}
	self, err := os.Readlink("/proc/self")
	if err != nil {
		return o, err
	}
	if self != strconv.Itoa(os.Getpid()) {
		return o, fmt.Errorf("/proc is of another PID namespace: process %d is %s there", os.Getpid(), self)
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return o, err
	}
	if o.Boot, err = parseUUID(strings.TrimSpace(string(boot))); err != nil {
		return o, fmt.Errorf("boot_id: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Stat("/proc/self/ns/pid", &st); err != nil {
		return o, fmt.Errorf("PID namespace: %w", err)
	}
	o.PIDSpace = st.Ino
	o.CPUs = Allowed()
	return o, nil
}

// Allowed returns the processors on which this process may run, as far as the set has bits for
// them.
func Allowed() (c CPUs) {
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) == nil {
		for n := range 64 * len(c) {
			if set.IsSet(n) {
				c[n/64] |= 1 << (n % 64)
			}
		}
	}
	return c
}

// sameMachine verifies that a descriptor is of this machine and PID namespace.
func sameMachine(o Descriptor) error {
	us, err := describeProcess()
	if err != nil {
		return err
	}
	if o.Boot != us.Boot {
		return fmt.Errorf("boot %x, not %x: %w", o.Boot, us.Boot, ErrElsewhere)
	}
	if o.PIDSpace != us.PIDSpace {
		return fmt.Errorf("PID namespace %d, not %d: %w", o.PIDSpace, us.PIDSpace, ErrElsewhere)
	}
	return nil
}

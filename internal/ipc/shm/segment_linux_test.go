package shm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func newSegmentOf(t testing.TB, data int) *Segment {
	t.Helper()
	s, err := Create(data)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestCreateSizes(t *testing.T) {
	for _, data := range []int{-1, 1, MinData - page, MinData + 1, MaxData + page} {
		if _, err := Create(data); err == nil {
			t.Errorf("%d bytes were taken", data)
		}
	}
	for _, data := range []int{0, MinData, MinData + page, MaxData} {
		s := newSegmentOf(t, data)
		o := s.Descriptor()
		if err := checkSize(o.Size); err != nil {
			t.Errorf("%d bytes: %v", data, err)
		}
		if data == 0 {
			data = DefaultData
		}
		out, in := s.Ends()
		if len(out.ring.data) != data || len(in.ring.data) != data || out.ring.control == in.ring.control {
			t.Errorf("rings of %d and %d bytes, want %d", len(out.ring.data), len(in.ring.data), data)
		}
		if addressOf(out.ring.data)%page != 0 || addressOf(in.ring.data)%page != 0 {
			t.Errorf("%d bytes: the data does not begin with a page", data)
		}
	}
}

// Both sides of a segment, mapped twice in this process, see the records of the other.
func TestOpenJoinsTheRings(t *testing.T) {
	a := newSegmentOf(t, 0)
	b, err := Open(a.Descriptor())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := errors.Join(a.CloseFile(), a.CloseFile()); err != nil {
		t.Error(err)
	}
	ao, ai := a.Ends()
	bo, bi := b.Ends()
	for _, d := range []struct {
		out *Sender
		in  *Receiver
		say string
	}{{ao, bi, "from the creator"}, {bo, ai, "from the opener, in more than a cell's bytes"}} {
		head := [HeadSize]byte{1, 2, 3}
		if !d.out.TrySend(&head, []byte(d.say)) {
			t.Fatal("no room")
		}
		got, p, ok, err := d.in.Next()
		if !ok || err != nil || *got != head || string(p) != d.say {
			t.Errorf("%q, %v, %v", p, ok, err)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	a := newSegmentOf(t, 0)
	plain, err := os.Create(filepath.Join(t.TempDir(), "plain"))
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	if err := plain.Truncate(int64(a.Descriptor().Size)); err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	unsealed, err := unix.MemfdCreate("unsealed", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(unsealed)
	unix.Ftruncate(unsealed, int64(a.Descriptor().Size))
	other, err := unix.MemfdCreate("other", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(other)
	unix.Ftruncate(other, int64(a.Descriptor().Size))
	unix.FcntlInt(uintptr(other), unix.F_ADD_SEALS, seals)
	for _, test := range []struct {
		name string
		edit func(*Descriptor)
		is   error
	}{
		{"another machine", func(o *Descriptor) { o.Boot[3]++ }, ErrElsewhere},
		{"another PID namespace", func(o *Descriptor) { o.PIDSpace++ }, ErrElsewhere},
		{"no PID", func(o *Descriptor) { o.PID = 0 }, nil},
		{"negative PID", func(o *Descriptor) { o.PID = -1 }, nil},
		{"no descriptor", func(o *Descriptor) { o.FD = -1 }, nil},
		{"a descriptor nobody has", func(o *Descriptor) { o.FD = 1 << 20 }, nil},
		{"a process nobody is", func(o *Descriptor) { o.PID = 1<<31 - 1 }, nil},
		{"a size of nothing", func(o *Descriptor) { o.Size = 0 }, nil},
		{"an odd size", func(o *Descriptor) { o.Size++ }, nil},
		{"a size of everything", func(o *Descriptor) { o.Size = ^uint64(0) }, nil},
		{"another size", func(o *Descriptor) { o.Size += 2 * page }, nil},
		{"another nonce", func(o *Descriptor) { o.Nonce[15]++ }, nil},
		{"a pipe", func(o *Descriptor) { o.FD = int32(r.Fd()) }, nil},
		{"a plain file", func(o *Descriptor) { o.FD = int32(plain.Fd()) }, nil},
		{"memory that can shrink", func(o *Descriptor) { o.FD = int32(unsealed) }, nil},
		{"memory of something else", func(o *Descriptor) { o.FD = int32(other) }, nil},
	} {
		o := a.Descriptor()
		test.edit(&o)
		s, err := Open(o)
		if err == nil {
			s.Close()
			t.Errorf("%s was opened", test.name)
		} else if errors.Is(err, ErrElsewhere) != (test.is == ErrElsewhere) {
			t.Errorf("%s: %v", test.name, err)
		}
	}
	a.CloseFile()
	if s, err := Open(a.Descriptor()); err == nil {
		s.Close()
		t.Error("a closed descriptor was opened")
	}
}

func TestSegmentCannotShrink(t *testing.T) {
	a := newSegmentOf(t, 0)
	for _, size := range []int64{0, page, 1 << 30} {
		if err := unix.Ftruncate(a.fd, size); err == nil {
			t.Errorf("the segment now has %d bytes", size)
		}
	}
}

// leftovers lists mappings and descriptors of segments. Nothing else can be left, because a segment
// has no name.
func leftovers(t testing.TB) (all []string) {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	for l := range strings.Lines(string(maps)) {
		if strings.Contains(l, "memfd:isthmus") {
			all = append(all, l)
		}
	}
	fds, _ := os.ReadDir("/proc/self/fd")
	for _, fd := range fds {
		if to, _ := os.Readlink("/proc/self/fd/" + fd.Name()); strings.Contains(to, "memfd:isthmus") {
			all = append(all, to)
		}
	}
	return all
}

func TestCloseLeavesNothing(t *testing.T) {
	for _, file := range []bool{false, true} {
		a, err := Create(0)
		if err != nil {
			t.Fatal(err)
		}
		b, err := Open(a.Descriptor())
		if err != nil {
			t.Fatal(err)
		}
		if len(leftovers(t)) != 3 {
			t.Errorf("not two mappings and a descriptor: %v", leftovers(t))
		}
		if file {
			a.CloseFile()
		}
		if err := errors.Join(a.Close(), b.Close(), a.Close(), b.Close()); err != nil {
			t.Error(err)
		}
		if l := leftovers(t); len(l) > 0 {
			t.Errorf("left: %v", l)
		}
	}
}

// Two processes exchange messages of random sizes, both sending concurrently.
func TestTwoProcesses(t *testing.T) {
	p := start(t, "serve", MinData)
	rnd := rand.New(rand.NewPCG(3, 4))
	var under []message
	end := time.Now().Add(2 * time.Minute) // a bound, never reached
	for sent, received := 0, 0; received < 20_000; {
		if sent < 20_000 {
			m := message{sent, randomSize(rnd)}
			if !m.fits(p) {
				sent--
			} else {
				under = append(under, m)
			}
			sent++
		}
		head, payload, ok, err := p.in.Next()
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			if time.Now().After(end) {
				t.Fatalf("the other process does not answer: %d of %d came back", received, sent)
			}
			if len(under) > 200 || sent == 20_000 {
				p.wait()
			}
			continue
		}
		m := under[0]
		if under = under[1:]; !m.echoed(head, payload) {
			t.Fatalf("record %d is another", m.n)
		}
		p.in.Done()
		received++
	}
}

// fits sends m as a message of one record, if there is room.
func (m message) fits(p *party) bool {
	var head [HeadSize]byte
	head[0] = opEcho
	binary.NativeEndian.PutUint64(head[8:], uint64(m.size))
	return p.out.TrySend(&head, m.bytes())
}

func (m message) echoed(head *[HeadSize]byte, payload []byte) bool {
	return head[0] == opEcho && binary.NativeEndian.Uint64(head[8:]) == uint64(m.size) && string(payload) == string(m.bytes())
}

// A process is killed while both ends are active: the records that arrived are complete, only later
// ones are missing, and nothing is left.
func TestKilledPeer(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	for round := range 25 {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			p := start(t, "serve", MinData)
			var under []message
			last, idle, dead := rnd.IntN(2000)*min(round, 1), 0, make(chan error, 1) // 0 at least once
			killed := false
			end := time.Now().Add(2 * time.Minute) // a bound, never reached
			for n := 0; idle < 100; {
				if m := (message{n, randomSize(rnd)}); m.fits(p) {
					under = append(under, m)
					n++
				}
				if n >= last && !killed { // the first message may have been sent before this is checked
					killed = true
					p.cmd.Process.Kill()
					go func() { dead <- p.cmd.Wait() }()
				}
				if p.out.Err() != nil {
					t.Fatal(p.out.Err())
				}
				head, payload, ok, err := p.in.Next()
				switch {
				case err != nil:
					t.Fatal(err)
				case ok:
					if !under[0].echoed(head, payload) {
						t.Fatalf("record %d is another", under[0].n)
					}
					under = under[1:]
					p.in.Done()
				case killed:
					if idle++; idle == 1 {
						<-dead
					}
				case time.Now().After(end):
					t.Fatalf("the other process does not answer: %d messages are under way", len(under))
				case len(under) > 0:
					YieldCPU()
				}
			}
			s := p.seg
			s.Close()
			if l := leftovers(t); len(l) > 0 {
				t.Errorf("left: %v", l)
			}
		})
	}
}

// A process of another user can neither open a segment nor read memory, and one in another PID
// namespace reports that.
func TestStrangers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can become somebody else")
	}
	for _, role := range []string{"nobody", "elsewhere"} {
		s := newSegmentOf(t, 0)
		cmd := selfAs(role)
		if role == "elsewhere" {
			cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
		}
		cmd.Stdin = strings.NewReader(hexOffer(s.Descriptor()))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", role, err, out)
		}
	}
}

// nobody is a role: it expects to be refused.
func nobody(o Descriptor) error {
	if err := syscall.Setresuid(65534, 65534, 65534); err != nil {
		return err
	}
	unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0) // so that it can inspect itself
	return refused(o, func(err error) bool { return errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) })
}

// elsewhere is the same in another PID namespace, with the /proc of the first.
func elsewhere(o Descriptor) error {
	return refused(o, func(err error) bool { return strings.Contains(err.Error(), "PID namespace") })
}

func refused(o Descriptor, as func(error) bool) error {
	if s, err := Open(o); err == nil || !as(err) {
		return fmt.Errorf("open: %v, %v", s, err)
	}
	if m, err := OpenMemory(o); err == nil || !as(err) {
		return fmt.Errorf("memory: %v, %v", m, err)
	}
	return nil
}

func TestMemory(t *testing.T) {
	p := start(t, "serve", 0)
	// The child reads no memory, so this process reads the child's: only its nonce is known.
	m, err := OpenMemory(p.other)
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 16)
	if err := m.Read(got, p.other.Proof); err != nil || string(got) != string(p.other.Nonce[:]) {
		t.Errorf("%x, %v; want %x", got, err, p.other.Nonce)
	}
	wrong := p.other
	wrong.Nonce[0]++
	if _, err := OpenMemory(wrong); !errors.Is(err, ErrOtherProcess) {
		t.Errorf("another nonce: %v", err)
	}
	wrong = p.other
	wrong.Proof = 1
	if _, err := OpenMemory(wrong); !errors.Is(err, ErrOtherProcess) {
		t.Errorf("nonce at no address: %v", err)
	}
	wrong = p.other
	wrong.Boot[0]++
	if _, err := OpenMemory(wrong); !errors.Is(err, ErrElsewhere) {
		t.Errorf("another machine: %v", err)
	}
	p.cmd.Process.Kill()
	p.cmd.Wait()
	if err := m.Read(got, p.other.Proof); !errors.Is(err, ErrOtherProcess) {
		t.Errorf("an ended process: %v", err)
	}
}

func TestMemoryInPieces(t *testing.T) {
	s := newSegmentOf(t, 0)
	m, err := OpenMemory(s.Descriptor())
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{0, 1, page, maxCopied - 1, maxCopied, maxCopied + 1, 3<<20 + 77} {
		want, got := make([]byte, size), make([]byte, size+1)
		for i := range want {
			want[i] = byte(i + i>>8 + i>>16)
		}
		if err := m.Read(got[:size], uint64(addressOf(want))); err != nil || string(got[:size]) != string(want) || got[size] != 0 {
			t.Errorf("%d bytes: %v, or others", size, err)
		}
		clear(got)
		if err := m.Write(want, uint64(addressOf(got))); err != nil || string(got[:size]) != string(want) || got[size] != 0 {
			t.Errorf("writing %d bytes: %v, or others", size, err)
		}
		runtime.KeepAlive(want)
	}
	// Of two pages the second is unreadable.
	pages, err := unix.Mmap(-1, 0, 2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(pages)
	if err := unix.Mprotect(pages[page:], unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []struct {
		addr uint64
		n    int
	}{{uint64(addressOf(pages)), page + 1}, {uint64(addressOf(pages)) + page, 1}, {0, 1}, {^uint64(0), 1}, {^uint64(0) - 5, 100}, {1 << 63, 5}} {
		if err := m.Read(make([]byte, bad.n), bad.addr); err == nil {
			t.Errorf("%d bytes at %#x were read", bad.n, bad.addr)
		}
	}
	into := make([]byte, 1000)
	for _, bad := range []int{page + 1, 2 * page} {
		if err := m.Write(make([]byte, bad), uint64(addressOf(pages))); err == nil {
			t.Errorf("%d bytes were written to one page", bad)
		}
	}
	m.nonce[0]++
	if err := m.Write(make([]byte, 1), uint64(addressOf(pages))); !errors.Is(err, ErrOtherProcess) {
		t.Errorf("write to another process: %v", err)
	}
	m.nonce[0]--
	if n := testing.AllocsPerRun(100, func() {
		m.Read(into, uint64(addressOf(pages)))
		m.Write(into, uint64(addressOf(pages)))
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

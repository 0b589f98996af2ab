package local

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/testkit"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// socketPair returns both ends of a stream Unix socket.
func socketPair(t *testing.T) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		c, err := net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		ends[i] = c.(*net.UnixConn)
	}
	return ends[0], ends[1]
}

// openFiles counts this process's descriptors, or skips the comparison where the system does not
// list them.
func openFiles(t *testing.T) int {
	t.Helper()
	for _, dir := range []string{"/proc/self/fd", "/dev/fd"} {
		if entries, err := os.ReadDir(dir); err == nil {
			return len(entries)
		}
	}
	return 0
}

func incoming() *wire.LocalIncoming {
	return &wire.LocalIncoming{Carrier: 3, Path: overlay.Path{Technique: overlay.Direct, Reason: "same site"}}
}

// The descriptor that arrives must be the same pipe, and its copies must not outlive their owners.
func TestDescriptorTravels(t *testing.T) {
	before := openFiles(t)
	a, b := socketPair(t)
	sender, receiver := NewConn(a), NewConn(b)
	for range 100 {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := sender.Send(incoming(), w); err != nil {
			t.Fatal(err)
		}
		w.Close()
		f, got, err := receiver.Receive()
		if err != nil {
			t.Fatal(err)
		}
		if in, ok := f.(*wire.LocalIncoming); !ok || in.Carrier != 3 || in.Path.Reason != "same site" {
			t.Fatalf("got %+v", f)
		}
		if _, err := got.WriteString("through"); err != nil {
			t.Fatal(err)
		}
		flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, got.Fd(), syscall.F_GETFD, 0)
		if errno != 0 || flags&syscall.FD_CLOEXEC == 0 {
			t.Fatalf("the descriptor is inherited by child processes (flags %d, %v)", flags, errno)
		}
		got.Close()
		text, err := io.ReadAll(r) // ends because no copy of w is left
		r.Close()
		if err != nil || string(text) != "through" {
			t.Fatalf("%q, %v", text, err)
		}
	}
	a.Close()
	b.Close()
	if after := openFiles(t); after > before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

func TestSendChecksDescriptor(t *testing.T) {
	a, _ := socketPair(t)
	c := NewConn(a)
	if err := c.Send(incoming(), nil); err == nil || !strings.Contains(err.Error(), "must be: true") {
		t.Errorf("frame without its descriptor: %v", err)
	}
	if err := c.Send(&wire.LocalCancel{Request: 1}, a); err == nil || !strings.Contains(err.Error(), "must be: false") {
		t.Errorf("descriptor without its frame: %v", err)
	}
}

// Whatever a peer sends, no descriptor may stay behind.
func TestBadFramesLeakNothing(t *testing.T) {
	dialled := wire.Append(nil, &wire.LocalDialled{Request: 1, Path: overlay.Path{Reason: "r"}})
	cancel := wire.Append(nil, &wire.LocalCancel{Request: 1})
	foreign := append([]byte(nil), dialled...)
	foreign[2] = 9
	broken := append([]byte(nil), dialled...)
	broken[wire.HeaderLen+17] = 77 // the technique
	for _, tc := range []struct {
		name  string
		in    []byte
		fds   int
		late  bool // the descriptors go with the last byte, not the first
		class error
		text  string
	}{
		{"missing", dialled, 0, false, wire.ErrMalformed, "local dialled came with 0 descriptors, want 1"},
		{"two", dialled, 2, false, wire.ErrMalformed, "frame with 2 descriptors"},
		{"very many", dialled, maxDescriptors, false, wire.ErrMalformed, "frame with 253 descriptors"},
		{"surplus", cancel, 1, false, wire.ErrMalformed, "local cancel came with 1 descriptors, want 0"},
		{"surplus with the last byte", cancel, 1, true, wire.ErrMalformed, "local cancel came with 1 descriptors"},
		{"version", foreign, 1, false, wire.ErrVersion, "speaks version 9"},
		{"body", broken, 1, false, wire.ErrMalformed, "unknown technique 77"},
		{"cut header", dialled[:3], 1, false, io.ErrUnexpectedEOF, ""},
		{"no body", dialled[:wire.HeaderLen], 1, false, io.ErrUnexpectedEOF, ""},
		{"cut body", dialled[:len(dialled)-1], 1, false, io.ErrUnexpectedEOF, ""},
		{"nothing", nil, 0, false, io.EOF, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := openFiles(t)
			a, b := socketPair(t)
			sent := make(chan struct{})
			go func() {
				defer close(sent)
				sendRaw(a, tc.in, tc.fds, tc.late)
			}()
			b.SetReadDeadline(time.Now().Add(testWait))
			f, file, err := NewConn(b).Receive()
			if f != nil || file != nil || !errors.Is(err, tc.class) || !strings.Contains(err.Error(), tc.text) {
				t.Errorf("got %v, %v, %v; want %v, %q", f, file, err, tc.class, tc.text)
			}
			a.Close()
			b.Close()
			<-sent // a descriptor is closed only after its use
			if after := openFiles(t); after > before {
				t.Errorf("%d descriptors before, %d after", before, after)
			}
		})
	}
}

// sendRaw writes in with n copies of a descriptor and closes a. The descriptor is not a's: a copy
// of that in flight would keep the socket open.
func sendRaw(a *net.UnixConn, in []byte, n int, late bool) {
	defer a.Close()
	f, err := os.Open(os.DevNull)
	if err != nil {
		return
	}
	defer f.Close()
	fds := make([]int, n)
	for i := range fds {
		fds[i] = int(f.Fd())
	}
	if late {
		a.Write(in[:len(in)-1])
		in = in[len(in)-1:]
	}
	var rights []byte
	if n > 0 {
		rights = syscall.UnixRights(fds...)
	}
	if len(in) > 0 {
		a.WriteMsgUnix(in, rights, nil)
	}
}

func TestUnknownOptionalFrameIsSkippedWithItsDescriptor(t *testing.T) {
	before := openFiles(t)
	a, b := socketPair(t)
	in := []byte{'I', 'S', wire.Version, byte(wire.OptionalBit | 0x7f), 0, 1, 0}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		f, _ := a.File()
		a.WriteMsgUnix(in, syscall.UnixRights(int(f.Fd())), nil)
		f.Close()
		NewConn(a).Send(&wire.LocalCancel{Request: 5}, nil)
	}()
	b.SetReadDeadline(time.Now().Add(testWait))
	f, file, err := NewConn(b).Receive()
	<-sent
	if c, ok := f.(*wire.LocalCancel); !ok || c.Request != 5 || file != nil || err != nil {
		t.Errorf("got %v, %v, %v", f, file, err)
	}
	a.Close()
	b.Close()
	if after := openFiles(t); after > before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

// Frames of several senders must not be mixed or lose their descriptors.
func TestConcurrentSend(t *testing.T) {
	a, b := socketPair(t)
	sender, receiver := NewConn(a), NewConn(b)
	const senders, each = 8, 50
	var wg sync.WaitGroup
	for i := range senders {
		wg.Go(func() {
			for range each {
				var err error
				if i%2 == 0 {
					err = sender.Send(incoming(), a)
				} else {
					err = sender.Send(&wire.LocalFault{Carrier: uint64(i), Text: strings.Repeat("x", 1500)}, nil)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	b.SetReadDeadline(time.Now().Add(testWait))
	count := 0
	for range senders * each {
		_, f, err := receiver.Receive()
		if err != nil {
			t.Fatal(err)
		}
		if f != nil {
			f.Close()
			count++
		}
	}
	wg.Wait()
	if count != senders*each/2 {
		t.Errorf("%d descriptors arrived", count)
	}
}

func TestPeerCred(t *testing.T) {
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(testkit.ShortDir(t), "s"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	dialled, err := net.Dial("unix", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer dialled.Close()
	ln.SetDeadline(time.Now().Add(30 * time.Second))
	accepted, err := ln.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	got, err := NewConn(accepted).PeerCred()
	want := Cred{uint32(os.Getuid()), uint32(os.Getgid()), int32(os.Getpid())}
	if err != nil || got != want {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
}

// The frames that a peer sent before it closed are received, even if a Send to it fails meanwhile,
// with unread input on the peer's side.
func TestLastWords(t *testing.T) {
	a, b := socketPair(t)
	ours, theirs := NewConn(a), NewConn(b)
	if err := ours.Send(&wire.LocalLeave{}, nil); err != nil { // which they do not read
		t.Fatal(err)
	}
	if err := theirs.Send(&wire.Refuse{Code: wire.CodeForbidden, By: "helper", Text: "revoked"}, nil); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	if err := ours.Send(&wire.LocalLeave{}, nil); err == nil {
		t.Error("sent to a peer that has closed")
	}
	f, _, err := ours.Receive()
	if r, ok := f.(*wire.Refuse); !ok || r.Text != "revoked" {
		t.Errorf("received %v, %v", f, err)
	}
	if f, _, err = ours.Receive(); err == nil {
		t.Errorf("received %v behind the end", f)
	}
}

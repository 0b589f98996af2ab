package shm

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The tests and benchmarks with two processes run this binary a second time, with a role in the
// environment. The child reads the descriptor from its standard input and writes its own to its
// output.
const roleVar = "ISTHMUS_SHM_TEST_ROLE"

var (
	roles     = map[string]func(p *party) error{"serve": serve}
	strangers = map[string]func(o Descriptor) error{"nobody": nobody, "elsewhere": elsewhere}
)

func TestMain(m *testing.M) {
	role := os.Getenv(roleVar)
	if role == "" {
		os.Exit(m.Run())
	}
	if err := play(role); err != nil {
		fmt.Fprintln(os.Stderr, role, err)
		os.Exit(1)
	}
}

func play(role string) error {
	in := bufio.NewReader(os.Stdin)
	offer, err := readOffer(in)
	if err != nil {
		return err
	}
	if stranger := strangers[role]; stranger != nil {
		return stranger(offer)
	}
	s, err := Open(offer)
	if err != nil {
		return err
	}
	defer s.Close()
	p := newParty(s)
	go func() { // the child polls forever: it must exit when the parent has ended in any way
		io.Copy(io.Discard, in)
		os.Exit(1)
	}()
	fmt.Print(hexOffer(s.Descriptor()))
	return roles[role](p)
}

func selfAs(role string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleVar+"="+role)
	return cmd
}

func hexOffer(o Descriptor) string { return hex.EncodeToString(o.Append(nil)) + "\n" }

func readOffer(in *bufio.Reader) (Descriptor, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return Descriptor{}, err
	}
	b, err := hex.DecodeString(line[:len(line)-1])
	if err != nil {
		return Descriptor{}, err
	}
	return ParseDescriptor(b)
}

// A party is a process's side of a segment.
type party struct {
	seg    *Segment
	out    *Sender
	in     *Receiver
	waiter *Waiter
	began  time.Time
	other  Descriptor // in the parent, the child's descriptor

	cmd   *exec.Cmd
	stdin io.WriteCloser
}

func newParty(s *Segment) *party {
	p := &party{seg: s, began: time.Now()}
	p.out, p.in = s.Ends()
	var set unix.CPUSet
	unix.SchedGetaffinity(0, &set)
	p.waiter = NewWaiter(WaitPolicy{Crowded: set.Count() == 1})
	return p
}

// start starts a child in a role and returns the parent's side.
func start(t testing.TB, role string, data int) *party {
	t.Helper()
	s, err := Create(data)
	if err != nil {
		t.Fatal(err)
	}
	p := newParty(s)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	p.cmd = selfAs(role)
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.stop)
	fmt.Fprint(p.stdin, hexOffer(s.Descriptor()))
	if p.other, err = readOffer(bufio.NewReader(out)); err != nil {
		t.Fatal(err)
	}
	if err := s.CloseFile(); err != nil {
		t.Fatal(err)
	}
	return p
}

// stop ends the child.
func (p *party) stop() {
	p.stdin.Close()
	p.cmd.Process.Kill()
	p.cmd.Wait()
}

// wait is called after each empty poll of a wait.
func (p *party) wait() {
	if p.waiter.Spinning() {
		Pause()
		return
	}
	if p.waiter.Next(time.Since(p.began), true) == Park { // there is no link for a wake-up
		p.waiter.Begin()
	}
	YieldCPU()
}

const (
	opEcho = iota
	opSink
	opEnd
)

// send sends a message of any length in chunks: the head has op and the length.
func (p *party) send(op byte, msg []byte) error {
	var head [HeadSize]byte
	head[0] = op
	binary.NativeEndian.PutUint64(head[8:], uint64(len(msg)))
	for {
		n := min(len(msg), chunk)
		if !p.out.TrySend(&head, msg[:n]) {
			if err := p.out.Err(); err != nil {
				return err
			}
			p.wait()
			continue
		}
		p.out.PeerSleeps()
		if msg = msg[n:]; len(msg) == 0 {
			return nil
		}
	}
}

var chunk = MaxRecord

// recv receives a message into buf.
func (p *party) recv(buf []byte) (op byte, n int, err error) {
	p.waiter.Begin()
	for {
		head, payload, ok, err := p.in.Next()
		if err != nil {
			return 0, 0, err
		}
		if !ok {
			p.wait()
			continue
		}
		op = head[0]
		total := int(binary.NativeEndian.Uint64(head[8:]))
		n += copy(buf[n:], payload)
		p.in.Done()
		if n >= total {
			p.waiter.Found()
			return op, n, nil
		}
	}
}

// serve echoes, discards, and answers an end.
func serve(p *party) error {
	buf := make([]byte, 8<<20)
	for {
		op, n, err := p.recv(buf)
		if err != nil {
			return err
		}
		switch op {
		case opEcho:
			err = p.send(opEcho, buf[:n])
		case opEnd:
			err = p.send(opEnd, nil)
			return err
		}
		if err != nil {
			return err
		}
	}
}

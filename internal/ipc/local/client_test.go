package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/internal/testkit"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

const testWait = 30 * time.Second

// helper is a stand-in for the node's helper: it sends a welcome and passes every later frame to
// the test.
type helper struct {
	ln       *net.UnixListener
	refuse   *wire.Refuse
	hellos   chan *wire.LocalHello
	frames   chan wire.Frame
	mu       sync.Mutex
	conn     *Conn
	features uint32 // in its welcome
	done     sync.WaitGroup
}

func startHelper(t *testing.T, socket string) *helper { return startHelperThat(t, socket, nil) }

// startHelperThat starts a helper that refuses every process, if refuse is not nil.
func startHelperThat(t *testing.T, socket string, refuse *wire.Refuse) *helper {
	t.Helper()
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	h := &helper{ln: ln, refuse: refuse, features: wire.FeatureNames, hellos: make(chan *wire.LocalHello, 8), frames: make(chan wire.Frame, 8)}
	h.done.Go(func() {
		for {
			c, err := ln.AcceptUnix()
			if err != nil {
				return
			}
			h.done.Go(func() { h.serve(NewConn(c)) })
		}
	})
	return h
}

func (h *helper) serve(c *Conn) {
	defer c.Close()
	f, _, err := c.Receive()
	if err != nil {
		return
	}
	if h.refuse != nil {
		c.Send(h.refuse, nil)
		return
	}
	hello := f.(*wire.LocalHello)
	h.hellos <- hello
	node := overlay.NodeID{Site: "sitea", Name: "a1"}
	life := max(hello.Generation, 77)
	c.Send(&wire.LocalPlace{Node: node, Generation: life}, nil)
	f, _, err = c.Receive()
	if err != nil {
		return
	}
	signature := f.(*wire.LocalProof).Signature
	proof := string(append(hello.Key[:], signature[:]...))
	if err := jobkey.CheckPoint(overlay.AccessPoint{Process: overlay.ProcessName{Job: hello.Job, Rank: hello.Rank}, Generation: life, Node: node, Proof: proof}); err != nil {
		c.Send(&wire.Refuse{Code: wire.CodeOf(err), By: "helper", Text: err.Error()}, nil)
		return
	}
	h.mu.Lock()
	h.conn = c
	features := h.features
	h.mu.Unlock()
	c.Send(&wire.LocalWelcome{Features: features, Node: overlay.NodeID{Site: "sitea", Name: "a1"}}, nil)
	for {
		f, _, err := c.Receive()
		if err != nil {
			return
		}
		h.frames <- f
	}
}

func (h *helper) send(t *testing.T, f wire.Frame, socket net.Conn) {
	t.Helper()
	h.mu.Lock()
	c := h.conn
	h.mu.Unlock()
	var err error
	if socket == nil {
		err = c.Send(f, nil)
	} else {
		err = c.Send(f, socket.(*net.UnixConn))
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (h *helper) next(t *testing.T) wire.Frame {
	t.Helper()
	select {
	case f := <-h.frames:
		return f
	case <-time.After(testWait):
		t.Fatal("the client sent nothing")
		return nil
	}
}

// stop ends the helper as its death would.
func (h *helper) stop() {
	h.ln.Close()
	h.mu.Lock()
	if h.conn != nil {
		h.conn.Close()
	}
	h.mu.Unlock()
	h.done.Wait()
}

func testConfig(t *testing.T, socket string) ClientConfig {
	t.Helper()
	key, err := jobkey.Parse("demo:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8")
	if err != nil {
		t.Fatal(err)
	}
	return ClientConfig{Socket: socket, Process: overlay.ProcessName{Job: key.ID(), Rank: 3}, Generation: 99, Auth: key.Auth()}
}

// startClient serves a client until the test ends.
func startClient(t *testing.T, socket string) (*Client, overlay.ProcessName) {
	t.Helper()
	cfg := testConfig(t, socket)
	c := NewClient(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- c.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := testkit.Receive(t, "the end of Serve", served); err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return c, overlay.ProcessName{Job: cfg.Process.Job, Rank: 4}
}

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), testWait)
	t.Cleanup(cancel)
	return ctx
}

// A client that is closed announces that; one that dies does not.
func TestLeave(t *testing.T) {
	dir := testkit.ShortDir(t)
	socket := filepath.Join(dir, "s")
	h := startHelper(t, socket)
	defer h.stop()
	c, _ := startClient(t, socket)
	if _, err := c.Ready(testContext(t)); err != nil {
		t.Fatal(err)
	}
	c.Close()
	if f := h.next(t); f.Type() != wire.TypeLocalLeave {
		t.Errorf("it says %v", f.Type())
	}
}

// The helper's report of dead processes reaches the callback.
func TestDead(t *testing.T) {
	dir := testkit.ShortDir(t)
	socket := filepath.Join(dir, "s")
	h := startHelper(t, socket)
	defer h.stop()
	told := make(chan string, 1)
	cfg := testConfig(t, socket)
	cfg.Dead = func(ranks []uint32, why string) { told <- fmt.Sprint(ranks, why) }
	c := NewClient(cfg)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- c.Serve(ctx) }()
	if _, err := c.Ready(testContext(t)); err != nil {
		t.Fatal(err)
	}
	h.send(t, &wire.LocalDead{Ranks: []uint32{4, 5}, Text: "their node is silent"}, nil)
	select {
	case got := <-told:
		if got != "[4 5]their node is silent" {
			t.Error(got)
		}
	case <-testContext(t).Done():
		t.Error("nobody was told")
	}
	cancel()
	if err := testkit.Receive(t, "the end of Serve", served); err != nil {
		t.Error(err)
	}
}

type dialled struct {
	carrier overlay.Carrier
	err     error
}

func dial(ctx context.Context, c *Client, peer overlay.ProcessName) chan dialled {
	out := make(chan dialled, 1)
	go func() {
		carrier, err := c.Dial(ctx, peer, overlay.AllWays)
		out <- dialled{carrier, err}
	}()
	return out
}

// talks checks that a and b are two ends of one connection.
func talks(t *testing.T, a, b net.Conn) {
	t.Helper()
	go a.Write([]byte("hi"))
	got := make([]byte, 2)
	b.SetReadDeadline(time.Now().Add(testWait))
	if _, err := io.ReadFull(b, got); err != nil || string(got) != "hi" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestClientDialAndAccept(t *testing.T) {
	socket := filepath.Join(testkit.ShortDir(t), "h")
	h := startHelper(t, socket)
	defer h.stop()
	c, peer := startClient(t, socket)
	ctx := testContext(t)
	if node, err := c.Ready(ctx); err != nil || node.String() != "sitea/a1" {
		t.Fatalf("%v, %v", node, err)
	}
	if hello := testkit.Receive(t, "a hello", h.hellos); hello.Rank != 3 || hello.Generation != 99 {
		t.Errorf("hello %+v", hello)
	}

	answer := dial(ctx, c, peer)
	ask := h.next(t).(*wire.LocalDial)
	if ask.Rank != 4 || ask.Budget <= 0 || ask.Budget > testWait-min(testWait/10, answerMargin) {
		t.Errorf("asked %+v", ask)
	}
	near, far := socketPair(t)
	path := overlay.Path{Technique: overlay.Reversed, Peer: overlay.NodeID{Site: "siteb", Name: "b1"}, Reason: "only the asker is reachable"}
	h.send(t, &wire.LocalDialled{Request: ask.Request, Carrier: 1, Seal: true, Idle: 25 * time.Second, Path: path}, near)
	near.Close()
	got := <-answer
	if here := (overlay.NodeID{Site: "sitea", Name: "a1"}); got.err != nil || got.carrier.Path != path || !got.carrier.Seal || got.carrier.Idle != 25*time.Second || got.carrier.Here != here {
		t.Fatalf("%+v", got)
	}
	talks(t, got.carrier.Conn, far)
	got.carrier.Conn.Close()

	near, far = socketPair(t)
	h.send(t, &wire.LocalIncoming{Carrier: 2, Idle: 110 * time.Second, Path: path}, near)
	near.Close()
	in, err := c.Accept(ctx)
	if err != nil || in.Path != path || in.Seal || in.Idle != 110*time.Second {
		t.Fatalf("%+v, %v", in, err)
	}
	talks(t, far, in.Conn)
	// The helper learns that the carrier failed.
	if err := in.Fault(); err != nil {
		t.Error(err)
	}
	h.send(t, &wire.LocalFault{Carrier: 2, Code: wire.CodeUnreachable, Text: "helper siteb/b1 cannot reach proxy p1"}, nil)
	in.Conn.SetReadDeadline(time.Now().Add(testWait))
	if _, err := in.Conn.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the conn of a faulty carrier: %v", err)
	}
	if err := in.Fault(); !errors.Is(err, overlay.ErrUnreachable) || err.Error() != "helper siteb/b1 cannot reach proxy p1" {
		t.Errorf("fault %v", err)
	}

	answer = dial(ctx, c, peer)
	ask = h.next(t).(*wire.LocalDial)
	h.send(t, &wire.LocalFailed{Request: ask.Request, Code: wire.CodeNoPath, Text: "direct timed out, relay refused"}, nil)
	got = <-answer
	if want := fmt.Sprintf("local.Dial: %v: direct timed out, relay refused", peer); !errors.Is(got.err, overlay.ErrNoPath) || got.err.Error() != want {
		t.Errorf("%v, want %s", got.err, want)
	}

	foreign := peer
	foreign.Job = "other" + foreign.Job
	if _, err := c.Dial(ctx, foreign, overlay.AllWays); !errors.Is(err, overlay.ErrForbidden) {
		t.Errorf("dial into another job: %v", err)
	}
}

func TestClientCancel(t *testing.T) {
	socket := filepath.Join(testkit.ShortDir(t), "h")
	h := startHelper(t, socket)
	defer h.stop()
	c, peer := startClient(t, socket)
	ctx, cancel := context.WithCancel(testContext(t))
	answer := dial(ctx, c, peer)
	ask := h.next(t).(*wire.LocalDial)
	cancel()
	if got := <-answer; !errors.Is(got.err, context.Canceled) || !strings.Contains(got.err.Error(), "the helper was still trying") {
		t.Errorf("%v", got.err)
	}
	if taken := h.next(t).(*wire.LocalCancel); taken.Request != ask.Request {
		t.Errorf("cancelled %d, asked %d", taken.Request, ask.Request)
	}
	// The answer was in flight: its socket must not stay open.
	near, far := socketPair(t)
	h.send(t, &wire.LocalDialled{Request: ask.Request, Carrier: 1}, near)
	near.Close()
	far.SetReadDeadline(time.Now().Add(testWait))
	if _, err := far.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the late carrier: %v", err)
	}
}

// The helper dies with a carrier given out and a Dial pending, and restarts.
func TestHelperRestart(t *testing.T) {
	socket := filepath.Join(testkit.ShortDir(t), "h")
	h := startHelper(t, socket)
	c, peer := startClient(t, socket)
	ctx := testContext(t)
	if _, err := c.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	testkit.Receive(t, "a hello", h.hellos)
	near, far := socketPair(t)
	h.send(t, &wire.LocalIncoming{Carrier: 1}, near)
	near.Close()
	live, err := c.Accept(ctx)
	if err != nil {
		t.Fatal(err)
	}
	answer := dial(ctx, c, peer)
	h.next(t)
	h.stop()
	talks(t, far, live.Conn)

	h = startHelper(t, socket)
	defer h.stop()
	if hello := testkit.Receive(t, "a hello", h.hellos); hello.Generation != 99 {
		t.Errorf("registered again as life %d", hello.Generation)
	}
	ask := h.next(t).(*wire.LocalDial)
	near, far = socketPair(t)
	h.send(t, &wire.LocalDialled{Request: ask.Request, Carrier: 1}, near)
	near.Close()
	got := <-answer
	if got.err != nil {
		t.Fatal(got.err)
	}
	talks(t, far, got.carrier.Conn)
}

func TestNoHelper(t *testing.T) {
	socket := filepath.Join(testkit.ShortDir(t), "h")
	c, peer := startClient(t, socket)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	_, err := c.Dial(ctx, peer, overlay.AllWays)
	if err == nil || !errors.Is(err, context.DeadlineExceeded) ||
		!strings.Contains(err.Error(), "helper "+socket+" is not reachable: ") || !strings.Contains(err.Error(), "is isthmus-helper running?") {
		t.Errorf("%v", err)
	}
}

// A permanent refusal ends Serve, Dial and Accept at once.
func TestHelperRefuses(t *testing.T) {
	socket := filepath.Join(testkit.ShortDir(t), "h")
	h := startHelperThat(t, socket, &wire.Refuse{Code: wire.CodeForbidden, By: "helper sitea/a1", Text: "the key is not that of job demo"})
	defer h.stop()
	cfg := testConfig(t, socket)
	c := NewClient(cfg)
	ctx := testContext(t)
	err := c.Serve(ctx)
	if !errors.Is(err, overlay.ErrForbidden) || err.Error() != "helper sitea/a1: the key is not that of job demo" {
		t.Errorf("Serve: %v", err)
	}
	if _, err := c.Dial(ctx, cfg.Process, overlay.AllWays); !errors.Is(err, overlay.ErrForbidden) {
		t.Errorf("Dial: %v", err)
	}
	if _, err := c.Accept(ctx); !errors.Is(err, overlay.ErrForbidden) {
		t.Errorf("Accept: %v", err)
	}
}

// Carriers beyond the queue are closed and counted; all are gone after Close, with every goroutine
// and descriptor.
func TestIncomingQueueIsBounded(t *testing.T) {
	goroutines, files := runtime.NumGoroutine(), openFiles(t)
	socket := filepath.Join(testkit.ShortDir(t), "h")
	h := startHelper(t, socket)
	c := NewClient(testConfig(t, socket))
	served := make(chan error, 1)
	go func() { served <- c.Serve(context.Background()) }()
	if _, err := c.Ready(testContext(t)); err != nil {
		t.Fatal(err)
	}
	var far []net.Conn
	for i := range maxIncoming + 3 {
		near, f := socketPair(t)
		h.send(t, &wire.LocalIncoming{Carrier: uint64(i)}, near)
		near.Close()
		far = append(far, f)
	}
	for _, f := range far[maxIncoming:] {
		f.SetReadDeadline(time.Now().Add(testWait))
		if _, err := f.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("a carrier too many: %v", err)
		}
	}
	if got := c.Dropped(); got != 3 {
		t.Errorf("%d counted as dropped, want 3", got)
	}
	c.Close()
	if err := testkit.Receive(t, "the end of Serve", served); err != nil {
		t.Error(err)
	}
	if _, err := c.Accept(testContext(t)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept after Close: %v", err)
	}
	h.stop()
	for _, f := range far {
		f.Close()
	}
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if runtime.NumGoroutine() <= goroutines && openFiles(t) <= files {
			return
		}
	}
	t.Errorf("%d goroutines and %d descriptors before, %d and %d after", goroutines, files, runtime.NumGoroutine(), openFiles(t))
}

func TestDirectory(t *testing.T) {
	dir := filepath.Join(testkit.ShortDir(t), "job")
	me := testConfig(t, "").Process
	other := me
	other.Rank = 5
	a, err := Listen(dir, me)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if _, err := Listen(dir, me); !errors.Is(err, overlay.ErrDuplicate) {
		t.Errorf("a second process of the rank: %v", err)
	}
	// The dialler starts first, and waits.
	ctx := testContext(t)
	answer := make(chan dialled, 1)
	go func() {
		c, err := a.Dial(ctx, other, overlay.AllWays)
		answer <- dialled{c, err}
	}()
	b, err := Listen(dir, other)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	in, err := b.Accept(ctx)
	if err != nil {
		t.Fatal(err)
	}
	got := <-answer
	if got.err != nil {
		t.Fatal(got.err)
	}
	talks(t, got.carrier.Conn, in.Conn)
	got.carrier.Conn.Close()
	in.Conn.Close()

	short, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if _, err := b.Accept(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Accept: %v", err)
	}
	absent := me
	absent.Rank = 6
	if _, err := a.Dial(short, absent, overlay.AllWays); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "for a process to listen on "+filepath.Join(dir, "rank-6-")) {
		t.Errorf("Dial: %v", err)
	}
	b.Finalized()
	b.Close()
	if _, err := b.Accept(ctx); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept after Close: %v", err)
	}
	if _, err := os.Stat(b.socket(5)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket stays: %v", err)
	}
	// A dead process leaves its socket; its successor replaces it.
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: b.socket(5), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	stale.Close()
	if _, err := a.Dial(ctx, other, overlay.AllWays); !errors.Is(err, overlay.ErrEnded) {
		t.Errorf("to a dead process: %v", err)
	}
	if b, err = Listen(dir, other); err != nil {
		t.Errorf("after a death: %v", err)
	} else {
		b.Close()
	}
}

// A process that left is known as such, until its rank starts again; a process whose own rank was here
// before waits, since the other may start again, too.
func TestDirectoryLeft(t *testing.T) {
	dir := testkit.ShortDir(t)
	me, other, third := testConfig(t, "").Process, testConfig(t, "").Process, testConfig(t, "").Process
	other.Rank, third.Rank = 5, 7
	a, b, c := listenIn(t, dir, me), listenIn(t, dir, other), listenIn(t, dir, third)
	b.Finalized()
	for range 2 {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
	ctx := testContext(t)
	_, err := a.Dial(ctx, other, overlay.AllWays)
	if !errors.Is(err, overlay.ErrLeft) || !errors.Is(err, overlay.ErrEnded) || !strings.Contains(err.Error(), "it has left the job, as "+filepath.Join(dir, "rank-5-")) {
		t.Errorf("Dial: %v", err)
	}
	a.Close()
	a = listenIn(t, dir, me)
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	if _, err := a.Dial(short, other, overlay.AllWays); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Dial of one that was here before: %v", err)
	}
	listenIn(t, dir, other)
	for _, d := range []*Directory{a, c} {
		got, err := d.Dial(ctx, other, overlay.AllWays)
		if err != nil {
			t.Fatalf("Dial of one that started again: %v", err)
		}
		got.Conn.Close()
	}
}

// Nothing stays in the directory when all have left or were killed, in whichever order, and no error comes of it if the
// directory is removed first.
func TestDirectoryLeftByAll(t *testing.T) {
	dir := testkit.ShortDir(t)
	var all []*Directory
	for rank := range uint32(20) {
		process := testConfig(t, "").Process
		process.Rank = rank
		all = append(all, listenIn(t, dir, process))
	}
	killed := testConfig(t, "").Process
	killed.Rank = 20
	dead := listenIn(t, dir, killed)
	dead.ln.SetUnlinkOnClose(false)
	dead.ln.Close()
	otherJob := testConfig(t, "").Process
	otherJob.Job = "other-fedcba98"
	last := listenIn(t, dir, otherJob)
	var leaving sync.WaitGroup
	for _, d := range all {
		leaving.Go(func() {
			d.Finalized()
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	leaving.Wait()
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 || entries[0].Name() != filepath.Base(last.socket(otherJob.Rank)) {
		t.Errorf("what is left of the other job alone: %v, %v", entries, err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := last.Close(); err != nil {
		t.Errorf("Close after its directory was removed: %v", err)
	}
}

// listenIn listens until the test ends.
func listenIn(t *testing.T, dir string, process overlay.ProcessName) *Directory {
	t.Helper()
	d, err := Listen(dir, process)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func TestDirectoryIsPrivate(t *testing.T) {
	dir := testkit.ShortDir(t)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(dir, testConfig(t, "").Process); !errors.Is(err, overlay.ErrForbidden) || !strings.Contains(err.Error(), "chmod 700 "+dir) {
		t.Errorf("%v", err)
	}
	if _, err := Listen(filepath.Join(dir, strings.Repeat("x", 100)), testConfig(t, "").Process); err == nil || !strings.Contains(err.Error(), "choose a shorter directory") {
		t.Errorf("%v", err)
	}
}

// The generation that the first helper assigns is kept with the next one.
func TestGenerationIsCarried(t *testing.T) {
	socket := filepath.Join(testkit.ShortDir(t), "h")
	h := startHelper(t, socket)
	cfg := testConfig(t, socket)
	cfg.Generation = 0
	c := NewClient(cfg)
	ctx, cancel := context.WithCancel(testContext(t))
	served := make(chan error, 1)
	go func() { served <- c.Serve(ctx) }()
	defer func() {
		cancel()
		testkit.Receive(t, "the end of Serve", served)
		h.stop() // after the client: it ends a connection in the middle of the greeting
	}()
	if _, err := c.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	if first := testkit.Receive(t, "a hello", h.hellos); first.Generation != 0 || c.Generation() != 77 {
		t.Errorf("it says %d, and is in %d", first.Generation, c.Generation())
	}
	h.stop()
	h = startHelper(t, socket)
	if again := testkit.Receive(t, "the hello at the next helper", h.hellos); again.Generation != 77 {
		t.Errorf("it comes back in %d", again.Generation)
	}
}

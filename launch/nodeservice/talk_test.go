package nodeservice

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/internal/testkit"
	"github.com/isthmus-grid/isthmus/launch/jobagent"
	"github.com/isthmus-grid/isthmus/launch/nodeservice/nodepb"
	"github.com/isthmus-grid/isthmus/launch/reserve"
	"github.com/isthmus-grid/isthmus/launch/stage"
	"github.com/isthmus-grid/isthmus/overlay"
)

var here = overlay.NodeID{Site: "here", Name: "n1"}

// TestMain runs a job agent if a test's node service started this process as one.
func TestMain(m *testing.M) {
	jobagent.Main()
	// With -race a process lasts another second at its end, unless told otherwise: each agent, and its guard.
	if os.Getenv("GORACE") == "" {
		os.Setenv("GORACE", "atexit_sleep_ms=0")
	}
	inherited = append(inherited, "GORACE")
	os.Exit(m.Run())
}

// host is a running node service, for one test.
type host struct {
	*NodeService
	t    *testing.T
	ctx  context.Context // bounds the test
	stop func()          // ends Serve, and waits
}

func newHost(t *testing.T, change func(*Options)) *host {
	t.Helper()
	opts := Options{
		Node: here, Policy: reserve.Policy{Jobs: 4, Processes: 4, Allow: []reserve.Rule{{Identity: "*@*/*"}}}, Store: filepath.Join(t.TempDir(), "store"), Limit: 64 << 20,
		Helper: "/nowhere", Log: slog.New(slog.DiscardHandler), EndJobs: true,
	}
	if change != nil {
		change(&opts)
	}
	k, err := NewNodeService(opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	life, stop := context.WithCancel(context.Background())
	served := make(chan struct{})
	go func() {
		k.Serve(life)
		close(served)
	}()
	h := &host{k, t, ctx, func() { stop(); testkit.Receive(t, "the end of Serve", served) }}
	t.Cleanup(func() {
		h.stop()
		cancel()
		if left := h.left(); len(left) > 0 {
			t.Errorf("after the end there is %q", left)
		}
	})
	return h
}

// left lists the folders of jobs.
func (h *host) left() (names []string) {
	entries, err := os.ReadDir(h.jobs())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		h.t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// empty waits until nothing of any reservation is left.
func (h *host) empty() {
	h.t.Helper()
	testkit.Until(h.t, "the last reservation to go", func() bool {
		bookings := -1
		h.do(func(time.Time) { bookings = len(h.bookings) })
		return bookings == 0 && len(h.left()) == 0
	})
}

// pipe is a stream in memory.
type pipe struct {
	ctx  context.Context
	up   chan *nodepb.ToNode
	down chan *nodepb.ToSubmitter
}

func (p *pipe) Context() context.Context { return p.ctx }

func (p *pipe) Send(m *nodepb.ToSubmitter) error {
	select {
	case p.down <- m:
		return nil
	case <-p.ctx.Done():
		return p.ctx.Err()
	}
}

func (p *pipe) Recv() (*nodepb.ToNode, error) {
	select {
	case m, ok := <-p.up:
		if !ok {
			return nil, io.EOF
		}
		return m, nil
	case <-p.ctx.Done():
		return nil, p.ctx.Err()
	}
}

// talk is one stream of a submitter, simulated by the test.
type talk struct {
	h     *host
	who   Asker
	job   jobkey.Key
	id    []byte // of the reservation
	hold  *nodepb.Hold
	pipe  *pipe
	hang  context.CancelFunc // breaks the stream
	ended chan error         // result of Converse
	last  uint64             // number of the last event
}

func (h *host) talk() *talk {
	h.t.Helper()
	job, err := jobkey.New("job")
	if err != nil {
		h.t.Fatal(err)
	}
	t := &talk{h: h, who: Asker{Node: overlay.NodeID{Site: "there", Name: "n9"}, User: "alice", UID: 7}, job: job, id: make([]byte, 16)}
	rand.Read(t.id)
	return t
}

// open opens a stream, and leaves the previous one as it is. The first stream is opened
// automatically.
func (t *talk) open() {
	ctx, hang := context.WithCancel(t.h.ctx)
	t.pipe = &pipe{ctx, make(chan *nodepb.ToNode), make(chan *nodepb.ToSubmitter)}
	t.hang, t.ended = hang, make(chan error, 1)
	who, p, ended := t.who, t.pipe, t.ended
	go func() { // ends with the stream
		ended <- t.h.Converse(who, p)
		hang()
	}()
	t.h.t.Cleanup(hang)
}

func (t *talk) say(m *nodepb.ToNode) {
	t.h.t.Helper()
	if t.pipe == nil {
		t.open()
	}
	select {
	case t.pipe.up <- m:
	case <-t.pipe.ctx.Done(): // the answer shows why
	}
}

// hear returns the next message, or nil at the end of the stream.
func (t *talk) hear() *nodepb.ToSubmitter {
	t.h.t.Helper()
	select {
	case m := <-t.pipe.down:
		if m.Event != 0 {
			t.last = m.Event
		}
		return m
	case <-t.pipe.ctx.Done():
		if t.h.ctx.Err() != nil {
			t.h.t.Fatal("nothing came")
		}
		return nil
	}
}

func (t *talk) ask(processes int) *nodepb.ToSubmitter {
	t.h.t.Helper()
	t.say(&nodepb.ToNode{Say: &nodepb.ToNode_Ask{Ask: &nodepb.Ask{Key: t.id, Job: string(t.job.ID()), Processes: uint32(processes)}}})
	m := t.hear()
	if ok := m.GetOk(); ok != nil {
		t.hold = ok.Hold
	}
	return m
}

// booked asks, and fails the test if refused.
func (t *talk) booked() *talk {
	t.h.t.Helper()
	if m := t.ask(4); !m.GetOk().GetReplicas() { // without which no job with replicas would start
		t.h.t.Fatalf("asked, the node says %v", m)
	}
	return t
}

func (t *talk) attach(have uint64) *nodepb.ToSubmitter {
	t.h.t.Helper()
	t.say(&nodepb.ToNode{Say: &nodepb.ToNode_Attach{Attach: &nodepb.Attach{Key: t.id, Hold: t.hold, Have: have}}})
	return t.hear()
}

func (t *talk) manifest(name string, content []byte) {
	m, err := stage.Describe(bytes.NewReader(content))
	if err != nil {
		t.h.t.Fatal(err)
	}
	say := &nodepb.Manifest{Name: []byte(name), Mode: 0o700, Size: uint64(m.Size)}
	for _, sum := range m.Chunks {
		say.Sums = append(say.Sums, slices.Clone(sum[:]))
	}
	t.say(&nodepb.ToNode{Say: &nodepb.ToNode_Manifest{Manifest: say}})
}

func (t *talk) chunk(sum, data []byte) {
	t.say(&nodepb.ToNode{Say: &nodepb.ToNode_Chunk{Chunk: &nodepb.Chunk{Sum: sum, Data: data}}})
}

// brings stages a file of one chunk.
func (t *talk) brings(name, content string) {
	t.h.t.Helper()
	t.manifest(name, []byte(content))
	m := t.hear()
	if missing := m.GetMissing(); missing != nil {
		t.chunk(missing.Sums[0], []byte(content))
		m = t.hear()
	}
	if m.GetStored() == nil {
		t.h.t.Fatalf("staged %s, the node says %v", name, m)
	}
}

func (t *talk) start(s *nodepb.Start) *nodepb.ToSubmitter {
	t.h.t.Helper()
	s.Hold, s.JobKey, s.Size = t.hold, t.job.String(), max(s.Size, 1)
	if s.Processes == nil {
		s.Processes = []*nodepb.Process{{}}
	}
	t.say(&nodepb.ToNode{Say: &nodepb.ToNode_Start{Start: s}})
	for {
		if m := t.hear(); m.GetEvent() == 0 {
			return m
		}
	}
}

func (t *talk) commit() {
	t.say(&nodepb.ToNode{Say: &nodepb.ToNode_Commit{Commit: &nodepb.Commit{Hold: t.hold}}})
}

// runs starts a shell script and commits.
func (t *talk) runs(script string, more func(*nodepb.Start)) {
	t.h.t.Helper()
	s := &nodepb.Start{Argv: nodepb.Bytes([]string{"sh", "-c", script})}
	if more != nil {
		more(s)
	}
	if m := t.start(s); m.GetStarted() == nil {
		t.h.t.Fatalf("started, the node says %v", m)
	}
	t.commit()
}

func (t *talk) ack(event uint64) {
	t.say(&nodepb.ToNode{Say: &nodepb.ToNode_Ack{Ack: &nodepb.Ack{Event: event}}})
}

func (t *talk) cancel() {
	t.say(&nodepb.ToNode{Say: &nodepb.ToNode_Cancel{Cancel: &nodepb.Cancel{Key: t.id}}})
}

// received is what was received about a job.
type received struct {
	out, err, ended string
	exits           map[uint32]*nodepb.Exited
	files           map[string]string
	faults          []string
	over            bool
}

// listen receives and acknowledges everything until the stream ends.
func (t *talk) listen() received {
	t.h.t.Helper()
	all := received{exits: map[uint32]*nodepb.Exited{}, files: map[string]string{}}
	for {
		m := t.hear()
		if m == nil {
			return all
		}
		switch say := m.Say.(type) {
		case *nodepb.ToSubmitter_Output:
			if say.Output.Stderr {
				all.err += string(say.Output.Data)
			} else {
				all.out += string(say.Output.Data)
			}
		case *nodepb.ToSubmitter_Exited:
			all.exits[say.Exited.Process.Rank] = say.Exited
		case *nodepb.ToSubmitter_File:
			all.files[string(say.File.Name)] += string(say.File.Data) + string(say.File.Fault)
		case *nodepb.ToSubmitter_Fault:
			all.faults = append(all.faults, string(say.Fault.Text))
		case *nodepb.ToSubmitter_Over:
			all.over, all.ended = true, string(say.Over.Ended)
		}
		if m.Event != 0 {
			t.ack(m.Event)
		}
	}
}

// What a submitter says of its waiting reaches the node, whatever it says.
func TestWaitingOfAnAsk(t *testing.T) {
	key, err := jobkey.New("j")
	if err != nil {
		t.Fatal(err)
	}
	for ms, want := range map[uint64]time.Duration{0: 0, 1500: 1500 * time.Millisecond, math.MaxUint64: nodepb.MaxWaitedMs * time.Millisecond} {
		m := &nodepb.Ask{Key: make([]byte, 16), Job: string(key.ID()), Processes: 1, Queue: ms > 0, WaitedMs: ms}
		if a, err := nodepb.AskOf(m); err != nil || a.Waited != want || a.Queue != (ms > 0) {
			t.Errorf("%d ms: %+v, %v", ms, a, err)
		}
	}
}

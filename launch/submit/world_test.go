package submit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/isthmus-grid/isthmus/launch/allocate"
	"github.com/isthmus-grid/isthmus/launch/nodeservice/nodepb"
	"github.com/isthmus-grid/isthmus/launch/reserve"
	"github.com/isthmus-grid/isthmus/launch/stage"
	"github.com/isthmus-grid/isthmus/overlay"
)

// patience bounds the waits of a test. Nothing takes as long unless it hangs.
const patience = time.Minute

// world is a grid of nodes that simulate processes.
type world struct {
	nodepb.UnimplementedNodeServiceServer
	nodepb.UnimplementedSubmittersServer
	t     *testing.T
	grid  *Grid
	nodes map[string]*node
	order []string
	far   map[string]time.Duration // "FROM TO", as Measure returns it
	wide  map[string]float64       // the same for bandwidth, in bytes a second

	mu      sync.Mutex      // guards the fields below
	carried int             // bandwidths that were requested
	busy    map[string]bool // sites that are being measured

	unlisted bool           // the list of hosts is unavailable
	away     map[string]int // for so many ms a host has been, which is listed as that; it grows with each list
	returns  int            // after so many ms
	madeUp   []*nodepb.Host // at the end of the list; their calls are not answered
	asked    atomic.Int64   // calls to those
}

// node is a node service for tests: the reservations are real, the processes are functions.
type node struct {
	name   string
	policy reserve.Policy
	life   func(*process) // of each process; set before the job
	dead   bool           // does not answer

	outdated bool // knows no replicas
	mute     bool // does not say TakenForDead
	settled  bool // starts no process in the place of a lost replica
	demands  bool // says when rank 0 waits for input

	mu       sync.Mutex
	node     *reserve.Node
	talks    map[reserve.Key]*talk
	chunks   map[stage.Sum][]byte
	received int                              // bytes of chunks
	deaths   []uint32                         // processes that the submitter says have died
	joined   []string                         // hosts that the submitter says have joined, with their processes
	files    []string                         // those stored, with their contents' length
	breaks   func(*talk, *nodepb.ToNode) bool // whether to break the stream instead of handling the message
}

// talk is one reservation.
type talk struct {
	n         *node
	key       reserve.Key
	stream    grpc.BidiStreamingServer[nodepb.ToNode, nodepb.ToSubmitter]
	stop      context.CancelFunc // of the stream
	events    []*nodepb.ToSubmitter
	running   []*process
	committed chan struct{} // closed by Commit
	manifest  *nodepb.Manifest
	taken     uint64
	input     bytes.Buffer
	inputEnd  chan struct{}
	start     *nodepb.Start
	broke     int
}

// process is a process that a test's function simulates.
type process struct {
	*talk
	Rank    uint32
	proc    *nodepb.Process
	Signals chan string
}

// say writes to the process's standard output.
func (p *process) say(format string, args ...any) {
	p.event(&nodepb.ToSubmitter{Say: &nodepb.ToSubmitter_Output{Output: &nodepb.Output{Process: p.proc, Data: fmt.Appendf(nil, format, args...)}}})
}

// complain writes to the process's standard error.
func (p *process) complain(text string) {
	p.event(&nodepb.ToSubmitter{Say: &nodepb.ToSubmitter_Output{Output: &nodepb.Output{Process: p.proc, Stderr: true, Data: []byte(text)}}})
}

// newWorld makes nodes that accept two jobs, each of as many processes as the number after their
// names.
func newWorld(t *testing.T, names ...string) *world {
	w := &world{t: t, nodes: map[string]*node{}}
	for _, name := range names {
		name, count, _ := strings.Cut(name, ":")
		n := &node{name: name, policy: reserve.Policy{Jobs: 2, Processes: 1, Allow: []reserve.Rule{{Identity: "*"}}}, talks: map[reserve.Key]*talk{}, chunks: map[stage.Sum][]byte{}}
		fmt.Sscan(count, &n.policy.Processes)
		n.life = func(p *process) { p.say("rank %d\n", p.Rank); p.exit(0, "") }
		var err error
		if n.node, err = reserve.NewNode(uint64(time.Now().UnixNano()), n.policy); err != nil {
			t.Fatal(err)
		}
		w.nodes[name] = n
		w.order = append(w.order, name)
	}
	l := bufconn.Listen(1 << 20)
	server := grpc.NewServer()
	nodepb.RegisterNodeServiceServer(server, w)
	nodepb.RegisterSubmittersServer(server, w)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }() // ends with the test
	conn, err := grpc.NewClient("passthrough:world", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		server.Stop()
		<-served
	})
	w.grid = NewGrid(conn)
	return w
}

func (w *world) of(ctx context.Context) (*node, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	name := strings.Join(md.Get("isthmus-node"), "")
	if slices.ContainsFunc(w.madeUp, func(h *nodepb.Host) bool { return h.Node == name }) {
		w.asked.Add(1)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	n := w.nodes[name]
	if n == nil || n.dead {
		return nil, status.Errorf(codes.Unavailable, "node %q cannot be reached", md.Get("isthmus-node"))
	}
	return n, nil
}

func (w *world) Ping(ctx context.Context, _ *nodepb.PingRequest) (*nodepb.PingResponse, error) {
	n, err := w.of(ctx)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return &nodepb.PingResponse{Jobs: uint32(len(n.node.List()))}, nil
}

func (w *world) Jobs(ctx context.Context, _ *nodepb.JobsRequest) (*nodepb.JobsResponse, error) {
	_, err := w.of(ctx)
	return &nodepb.JobsResponse{}, err
}

// Hosts gives every host a different latency, in the order in which they were named.
func (w *world) Hosts(context.Context, *nodepb.HostsRequest) (*nodepb.HostsResponse, error) {
	if w.unlisted {
		return nil, status.Error(codes.Unavailable, "the frontal is away")
	}
	r := &nodepb.HostsResponse{}
	for i, name := range w.order {
		n := w.nodes[name]
		if silent, away := w.away[name]; away {
			r.Hosts = append(r.Hosts, &nodepb.Host{Node: name, Jobs: uint32(n.policy.Jobs), Processes: uint32(n.policy.Processes), State: "away", SilentMs: uint64(silent)})
			if w.away[name] += 100; silent >= w.returns {
				delete(w.away, name)
			}
			continue
		}
		r.Hosts = append(r.Hosts, &nodepb.Host{Node: name, Jobs: uint32(n.policy.Jobs), Processes: uint32(n.policy.Processes), State: "up", LatencyNs: uint64(i+1) * 1e6})
	}
	r.Hosts = append(r.Hosts, w.madeUp...)
	return r, nil
}

// Converse handles messages until the stream ends.
func (w *world) Converse(s grpc.BidiStreamingServer[nodepb.ToNode, nodepb.ToSubmitter]) error {
	n, err := w.of(s.Context())
	if err != nil {
		return err
	}
	broken := make(chan struct{})
	over := make(chan error, 1)
	var t *talk
	var once sync.Once
	stop := func() { once.Do(func() { close(broken) }) }
	go func() { // ends with the stream
		for {
			m, err := s.Recv()
			if err != nil {
				over <- nil
				return
			}
			n.mu.Lock()
			if t == nil {
				t = n.talk(m)
				t.stream, t.stop = s, stop
			}
			ended, broke := false, n.breaks != nil && n.breaks(t, m)
			if !broke {
				ended = t.take(m)
			}
			n.mu.Unlock()
			if broke {
				over <- status.Error(codes.Unavailable, "the stream was cut")
				return
			}
			if ended {
				over <- nil
				return
			}
		}
	}()
	select {
	case err := <-over:
		n.mu.Lock()
		defer n.mu.Unlock()
		if t != nil && t.stream == s {
			t.stream = nil
		}
		return err
	case <-broken:
		return status.Error(codes.Unavailable, "the stream was cut")
	}
}

// talk finds the reservation of a first message. The caller must hold n.mu.
func (n *node) talk(m *nodepb.ToNode) *talk {
	key := slices.Concat(m.GetAsk().GetKey(), m.GetAttach().GetKey(), m.GetCancel().GetKey())
	t := n.talks[reserve.Key(key)]
	if t == nil {
		t = &talk{n: n, key: reserve.Key(key), inputEnd: make(chan struct{}), committed: make(chan struct{})}
		n.talks[t.key] = t
	}
	return t
}

func (t *talk) answer(m *nodepb.ToSubmitter) {
	if t.stream != nil {
		t.stream.Send(m)
	}
}

// event sends an event, now and after an attach. The caller must not hold n.mu.
func (t *talk) event(m *nodepb.ToSubmitter) {
	t.n.mu.Lock()
	defer t.n.mu.Unlock()
	m.Event = uint64(len(t.events) + 1)
	t.events = append(t.events, m)
	t.answer(m)
}

// exit ends a process.
func (p *process) exit(code uint32, signal string) {
	p.exits(&nodepb.Exited{Status: code, Signal: signal})
}

// exits is exit with all that a node says of it.
func (p *process) exits(how *nodepb.Exited) {
	how.Process = p.proc
	p.event(&nodepb.ToSubmitter{Say: &nodepb.ToSubmitter_Exited{Exited: how}})
	p.n.mu.Lock()
	p.running = slices.DeleteFunc(p.talk.running, func(q *process) bool { return q == p })
	p.talk.running = p.running
	last := len(p.running) == 0
	if last {
		p.n.node.Exited(p.key)
	}
	p.n.mu.Unlock()
	if last {
		p.event(&nodepb.ToSubmitter{Say: &nodepb.ToSubmitter_Over{Over: &nodepb.Over{}}})
	}
}

// take handles a message, and reports whether the stream is over. The caller must hold n.mu.
func (t *talk) take(m *nodepb.ToNode) bool {
	var r reserve.Message
	switch say := m.Say.(type) {
	case *nodepb.ToNode_Ask:
		r = reserve.Ask{Key: t.key, Job: overlay.JobID(say.Ask.Job), Processes: int(say.Ask.Processes)}
	case *nodepb.ToNode_Renew:
		r = reserve.Renew{Key: t.key, Hold: say.Renew.Hold.Value()}
	case *nodepb.ToNode_Start:
		var run []allocate.Process
		for _, p := range say.Start.Processes {
			run = append(run, p.Value())
		}
		t.start = say.Start
		r = reserve.Start{Key: t.key, Hold: say.Start.Hold.Value(), Processes: run}
	case *nodepb.ToNode_Commit:
		r = reserve.Commit{Key: t.key, Hold: say.Commit.Hold.Value()}
	case *nodepb.ToNode_Cancel:
		r = reserve.Cancel{Key: t.key}
	case *nodepb.ToNode_Attach:
		t.answer(&nodepb.ToSubmitter{Say: &nodepb.ToSubmitter_Attached{Attached: &nodepb.Attached{Taken: t.taken}}})
		for _, e := range t.events[say.Attach.Have:] {
			t.answer(e)
		}
	case *nodepb.ToNode_Manifest:
		t.file(say.Manifest, true)
	case *nodepb.ToNode_Chunk:
		if stage.SumOf(say.Chunk.Data) == stage.Sum(say.Chunk.Sum) {
			t.n.received += len(say.Chunk.Data)
			t.n.chunks[stage.Sum(say.Chunk.Sum)] = say.Chunk.Data
		}
		t.file(t.manifest, false)
	case *nodepb.ToNode_Input:
		if say.Input.Offset == t.taken {
			t.input.Write(say.Input.Data)
			t.taken += uint64(len(say.Input.Data))
			if say.Input.End {
				close(t.inputEnd)
			}
		}
		t.answer(&nodepb.ToSubmitter{Say: &nodepb.ToSubmitter_Taken{Taken: &nodepb.Taken{Bytes: t.taken}}})
	case *nodepb.ToNode_Signal:
		for _, p := range t.running {
			p.Signals <- say.Signal.Name
		}
	case *nodepb.ToNode_Dead:
		t.n.deaths = append(t.n.deaths, say.Dead.Processes...)
	case *nodepb.ToNode_Join:
		t.n.joined = append(t.n.joined, fmt.Sprint(say.Join.Node.Node, say.Join.Node.Ranks))
	case *nodepb.ToNode_Ack:
		return len(t.events) > 0 && t.events[len(t.events)-1].GetOver() != nil && say.Ack.Event == uint64(len(t.events))
	}
	if r == nil {
		return false
	}
	answer, actions := t.n.node.Receive(reserve.Requester{Identity: "me"}, r, time.Now())
	reply := nodepb.AnswerOf(answer, nodepb.Refused_UNSAID)
	over := reply.GetCancelled() != nil
	if ok := reply.GetOk(); ok != nil {
		ok.Replicas, ok.Spares, ok.Wants = !t.n.outdated, !t.n.outdated, t.n.demands
		ok.Detects, ok.Newcomers = !t.n.outdated && !t.n.mute, !t.n.outdated && !t.n.settled
	}
	if reply.GetCommitted() != nil {
		select {
		case <-t.committed:
		default:
			close(t.committed)
		}
	}
	if !over {
		t.answer(reply)
	}
	if reply.GetNok() != nil {
		return true
	}
	for _, a := range actions {
		switch a := a.(type) {
		case reserve.Launch:
			t.launch(a.Processes)
		case reserve.Kill:
			t.running = nil
			t.n.node.Exited(t.key)
		}
	}
	if over {
		t.answer(reply)
	}
	return over
}

// launch starts the functions, which outlive the test only if it has a bug.
func (t *talk) launch(all []allocate.Process) {
	var running []*process
	for _, p := range all {
		running = append(running, &process{talk: t, Rank: uint32(p.Rank), proc: nodepb.ProcessOf(p), Signals: make(chan string, 8)})
	}
	t.running = running
	for _, p := range slices.Clone(running) {
		go t.n.life(p)
	}
}

// file reports the missing chunks of a file when it is named, and that it is complete when it is.
func (t *talk) file(m *nodepb.Manifest, named bool) {
	t.manifest = m
	missing := &nodepb.Missing{Name: m.Name}
	for _, sum := range m.Sums {
		if !slices.ContainsFunc(missing.Sums, func(s []byte) bool { return bytes.Equal(s, sum) }) && t.n.chunks[stage.Sum(sum)] == nil {
			missing.Sums = append(missing.Sums, sum)
		}
	}
	if named {
		t.answer(&nodepb.ToSubmitter{Say: &nodepb.ToSubmitter_Missing{Missing: missing}})
	}
	if len(missing.Sums) == 0 {
		t.n.files = append(t.n.files, fmt.Sprintf("%s %d", m.Name, m.Size))
		t.answer(&nodepb.ToSubmitter{Say: &nodepb.ToSubmitter_Stored{Stored: &nodepb.Stored{Name: m.Name}}})
	}
}

// idle fails when a node that answers still has a reservation.
func (w *world) idle() {
	w.t.Helper()
	for name, n := range w.nodes {
		n.mu.Lock()
		n.node.Tick(time.Now())
		if left := n.node.List(); len(left) > 0 && !n.dead {
			w.t.Errorf("%s still has %+v", name, left)
		}
		n.mu.Unlock()
	}
}

var errPatience = errors.New("the test's patience is over")

func (w *world) run(j *Job) (*Result, error) {
	w.t.Helper()
	ctx, cancel := context.WithTimeoutCause(w.t.Context(), patience, errPatience)
	defer cancel()
	r, err := Run(ctx, w.grid, j)
	if errors.Is(err, errPatience) {
		w.t.Fatal(err)
	}
	return r, err
}

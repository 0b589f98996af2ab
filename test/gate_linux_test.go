package test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/isthmus-grid/isthmus/internal/grid"
	"github.com/isthmus-grid/isthmus/internal/jobkey"
	"github.com/isthmus-grid/isthmus/launch/gate"
	"github.com/isthmus-grid/isthmus/launch/gate/gatepb"
	"github.com/isthmus-grid/isthmus/launch/stage"
	"github.com/isthmus-grid/isthmus/overlay"
)

// talk is a conversation by hand, of a program at one node with the gate-keeper of
// another.
type talk struct {
	w      *world
	key    jobkey.Key
	id     []byte // of the reservation
	hold   *gatepb.Hold
	conn   *grpc.ClientConn
	stream gatepb.Gate_ConverseClient
	end    context.CancelFunc
}

// talk opens one and says nothing yet.
func (w *world) talk(from, to string, key jobkey.Key) *talk {
	w.t.Helper()
	conn, err := gate.Connect(w.Socket(from))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { conn.Close() })
	node, err := overlay.ParseNodeID(to)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, end := context.WithCancel(gate.At(w.ctx, node))
	w.t.Cleanup(end)
	stream, err := gatepb.NewGateClient(conn).Converse(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	t := &talk{w: w, key: key, id: make([]byte, 16), conn: conn, stream: stream, end: end}
	rand.Read(t.id)
	return t
}

// say sends a message; what fails shows in the answer.
func (t *talk) say(m *gatepb.ToNode) { t.stream.Send(m) }

// hear returns the next message.
func (t *talk) hear() *gatepb.ToSubmitter {
	t.w.t.Helper()
	m, err := t.stream.Recv()
	if err != nil {
		t.w.t.Fatalf("waiting for an answer: %v", err)
	}
	return m
}

// expect hears a message and fails unless get finds in it what was expected.
func expect[T comparable](t *talk, get func(*gatepb.ToSubmitter) T) T {
	t.w.t.Helper()
	m := t.hear()
	got := get(m)
	var none T
	if got == none {
		t.w.t.Fatalf("the node says %v", m)
	}
	return got
}

// booked is a talk with a node that holds a process, of which there may be none before: who has
// just lost the session with it takes a moment to see that.
func (w *world) booked(from, to, job string) (t *talk) {
	w.t.Helper()
	w.until(to+" to be booked", func() bool {
		t = w.talk(from, to, newKey(w.t, job))
		t.request(1)
		if m, err := t.stream.Recv(); err == nil && m.GetOk() != nil {
			t.hold = m.GetOk().Hold
			return true
		}
		t.end()
		t.conn.Close() // what Cleanup does comes too late for hundreds
		return false
	})
	return t
}

func (t *talk) request(processes int) {
	t.say(&gatepb.ToNode{Say: &gatepb.ToNode_Ask{Ask: &gatepb.Ask{Key: t.id, Job: string(t.key.ID()), Processes: uint32(processes)}}})
}

func (t *talk) ask(processes int) *gatepb.OK {
	t.w.t.Helper()
	t.request(processes)
	ok := expect(t, (*gatepb.ToSubmitter).GetOk)
	t.hold = ok.Hold
	return ok
}

// stageFile brings a file, and returns how many chunks were missing.
func (t *talk) stageFile(name string, content []byte) int {
	t.w.t.Helper()
	m := t.describe(name, content)
	answer := t.hear()
	if answer.GetStored() != nil {
		return 0
	}
	missing := answer.GetMissing()
	if missing == nil {
		t.w.t.Fatalf("asked for %s, the node says %v", name, answer)
	}
	for _, sum := range missing.Sums {
		for i, s := range m.Chunks {
			if bytes.Equal(s[:], sum) {
				t.say(&gatepb.ToNode{Say: &gatepb.ToNode_Chunk{Chunk: &gatepb.Chunk{Sum: sum, Data: content[i*stage.ChunkSize : min(len(content), (i+1)*stage.ChunkSize)]}}})
			}
		}
	}
	expect(t, (*gatepb.ToSubmitter).GetStored)
	return len(missing.Sums)
}

// describe says the manifest of a file.
func (t *talk) describe(name string, content []byte) stage.Manifest {
	t.w.t.Helper()
	m, err := stage.Describe(bytes.NewReader(content))
	if err != nil {
		t.w.t.Fatal(err)
	}
	say := &gatepb.Manifest{Name: name, Mode: 0o700, Size: uint64(m.Size)}
	for _, sum := range m.Chunks {
		say.Sums = append(say.Sums, append([]byte(nil), sum[:]...))
	}
	t.say(&gatepb.ToNode{Say: &gatepb.ToNode_Manifest{Manifest: say}})
	return m
}

// start starts ranks of a job of size, and commits.
func (t *talk) start(s *gatepb.Start) (folder string) {
	t.w.t.Helper()
	t.sayStart(s)
	folder = expect(t, (*gatepb.ToSubmitter).GetStarted).Folder
	t.say(&gatepb.ToNode{Say: &gatepb.ToNode_Commit{Commit: &gatepb.Commit{Hold: t.hold}}})
	return folder
}

func (t *talk) sayStart(s *gatepb.Start) {
	s.Hold, s.JobKey = t.hold, t.key.String()
	if s.Processes == nil {
		s.Processes = []*gatepb.Process{{}}
	}
	s.Size = max(s.Size, 1)
	t.say(&gatepb.ToNode{Say: &gatepb.ToNode_Start{Start: s}})
}

func (t *talk) ack(event uint64) {
	t.say(&gatepb.ToNode{Say: &gatepb.ToNode_Ack{Ack: &gatepb.Ack{Event: event}}})
}

// told is all that a job said.
type told struct {
	out, err string
	exits    map[uint32]*gatepb.Exited
	files    map[string]string
	over     *gatepb.Over
	last     uint64
}

// listen hears events until the job is over, and acknowledges them.
func (t *talk) listen() told {
	t.w.t.Helper()
	all := told{exits: map[uint32]*gatepb.Exited{}, files: map[string]string{}}
	for {
		m, err := t.stream.Recv()
		if errors.Is(err, io.EOF) && all.over != nil {
			return all
		}
		if err != nil {
			t.w.t.Fatalf("listening: %v; until then: %+v", err, all)
		}
		if m.Event != 0 {
			if m.Event <= all.last {
				t.w.t.Errorf("event %d comes after %d", m.Event, all.last)
			}
			all.last = m.Event
			t.ack(m.Event)
		}
		switch say := m.Say.(type) {
		case *gatepb.ToSubmitter_Output:
			if say.Output.Stderr {
				all.err += string(say.Output.Data)
			} else {
				all.out += string(say.Output.Data)
			}
		case *gatepb.ToSubmitter_Exited:
			all.exits[say.Exited.Process.Rank] = say.Exited
		case *gatepb.ToSubmitter_File:
			all.files[say.File.Name] += string(say.File.Data) + say.File.Fault
		case *gatepb.ToSubmitter_Over:
			all.over = say.Over
		}
	}
}

// launching is a grid in which jobs can be launched: each node offers as much as says.
func launching(offer map[string]any) grid.Config {
	return grid.Config{Settings: map[string]map[string]any{"helper": {"offer": offer}}}
}

func TestGateConversation(t *testing.T) {
	w := newWorld(t, siteClosed+siteShut, launching(map[string]any{"jobs": 2, "processes": 4}))
	c := w.talk("closed/n1", "shut/n1", newKey(t, "talk"))
	if ok := c.ask(8); ok.Processes != 4 {
		t.Errorf("%d processes are granted, want the 4 that are offered", ok.Processes)
	}
	script := []byte("#!/bin/sh\nread word\necho rank $ISTHMUS_RANK of $ISTHMUS_SIZE in $PLACE heard $word\necho this is wrong >&2\necho result >result.$ISTHMUS_RANK\nexit $ISTHMUS_RANK\n" + strings.Repeat("#\n", stage.ChunkSize))
	if n := c.stageFile("bin/script", script); n != 3 {
		t.Errorf("%d chunks of a new file are missing, want 3", n)
	}
	c.start(&gatepb.Start{
		Argv: []string{"bin/script"}, Environment: []string{"PLACE=shut"}, Size: 5, Input: true,
		Processes: []*gatepb.Process{{Rank: 0}, {Rank: 3}}, Outputs: []string{"result.*", "nothing"},
		Limits: []*gatepb.Limit{{Name: "nofile", Value: 99}},
	})
	c.say(&gatepb.ToNode{Say: &gatepb.ToNode_Input{Input: &gatepb.Input{Data: []byte("hello\n"), End: true}}})
	all := c.listen()
	if !strings.Contains(all.out, "rank 0 of 5 in shut heard hello\n") || !strings.Contains(all.out, "rank 3 of 5 in shut heard\n") || all.err != "this is wrong\nthis is wrong\n" {
		t.Errorf("the ranks said %q and %q", all.out, all.err)
	}
	if fmt.Sprint(all.exits[0].GetStatus(), all.exits[3].GetStatus()) != "0 3" {
		t.Errorf("the ranks ended with %v", all.exits)
	}
	if all.files["result.0"] != "result\n" || all.files["result.3"] != "result\n" || !strings.Contains(all.files["nothing"], "no such file") {
		t.Errorf("the files are %q", all.files)
	}
	if all.over.Ended != "" {
		t.Errorf("it was ended: %s", all.over.Ended)
	}
}

// hearOutput hears the next output of a job, and passes everything else over.
func (t *talk) hearOutput() (event uint64, text string) {
	t.w.t.Helper()
	for {
		if m := t.hear(); m.GetOutput() != nil {
			return m.Event, string(m.GetOutput().Data)
		}
	}
}

// reopen opens another stream for the same reservation.
func (t *talk) reopen(from, to string) *talk {
	t.w.t.Helper()
	next := t.w.talk(from, to, t.key)
	next.id, next.hold = t.id, t.hold
	return next
}

// A conversation goes on when the relay dies under it, and when its stream breaks it
// can be taken up where it was.
func TestGateOutlivesItsPath(t *testing.T) {
	cfg := launching(map[string]any{"jobs": 1, "processes": 1})
	cfg.Proxies = []string{"public/p1", "public/p2"}
	w := newWorld(t, siteClosed+siteShut, cfg)
	c := w.talk("closed/n1", "shut/n1", newKey(t, "path"))
	c.ask(1)
	c.start(&gatepb.Start{Argv: []string{"sh", "-c", "while read word; do echo heard $word; done; exit 7"}, Input: true})
	said := 0
	tell := func(word string) {
		c.say(&gatepb.ToNode{Say: &gatepb.ToNode_Input{Input: &gatepb.Input{Offset: uint64(said), Data: []byte(word + "\n")}}})
		said += len(word) + 1
	}
	tell("one")
	event, text := c.hearOutput()
	used := "proxy p1"
	if n, _ := w.Daemon("proxy p2").Descriptors(); strings.Contains(w.Daemon("helper closed/n1").Log(), "relay through p2") {
		t.Logf("p2 relays, with %d descriptors", n)
		used = "proxy p2"
	}
	w.Daemon(used).Kill()
	tell("two")
	if _, text2 := c.hearOutput(); text+text2 != "heard one\nheard two\n" {
		t.Errorf("heard %q and then %q", text, text2)
	}
	c.end()
	c = c.reopen("closed/n2", "shut/n1") // the same user from another node is another
	c.say(&gatepb.ToNode{Say: &gatepb.ToNode_Attach{Attach: &gatepb.Attach{Key: c.id, Hold: c.hold, Have: event}}})
	expect(c, (*gatepb.ToSubmitter).GetRefused)
	c = c.reopen("closed/n1", "shut/n1")
	c.say(&gatepb.ToNode{Say: &gatepb.ToNode_Attach{Attach: &gatepb.Attach{Key: c.id, Hold: c.hold, Have: event}}})
	if a := expect(c, (*gatepb.ToSubmitter).GetAttached); !a.Committed || a.Taken != uint64(said) {
		t.Errorf("attached: %v", a)
	}
	c.say(&gatepb.ToNode{Say: &gatepb.ToNode_Input{Input: &gatepb.Input{Offset: uint64(said), End: true}}})
	if all := c.listen(); all.out != "heard two\n" || all.exits[0].GetStatus() != 7 {
		t.Errorf("%+v", all)
	}
	if err := w.Daemon(used).Start(w.ctx); err != nil {
		t.Error(err)
	}
}

// A reservation that was not started ends with the helper, and its files with it; and the
// next one takes jobs again.
func TestGateHelperKilled(t *testing.T) {
	w := newWorld(t, siteClosed+siteShut, launching(map[string]any{"jobs": 1, "processes": 1}))
	c := w.booked("closed/n1", "shut/n1", "killed")
	c.stageFile("input", []byte("content"))
	w.Daemon("helper shut/n1").Kill()
	if err := w.Daemon("helper shut/n1").Start(w.ctx); err != nil {
		t.Fatal(err)
	}
	w.nothingOf("shut/n1")
	w.logged("helper shut/n1", "joined")
	c.end()
	w.booked("closed/n1", "shut/n1", "after").end()
}

// What cannot be reached says why, and lists and ends are for who may.
func TestGateCalls(t *testing.T) {
	cfg := launching(map[string]any{"jobs": 2, "processes": 1})
	cfg.Settings["helper closed/n2"] = map[string]any{"offer": map[string]any{"jobs": 0}}
	w := newWorld(t, siteClosed+siteShut, cfg)
	conn, err := gate.Connect(w.Socket("closed/n2"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	g, desk := gatepb.NewGateClient(conn), gatepb.NewDeskClient(conn)
	shut := gate.At(w.ctx, overlay.NodeID{Site: "shut", Name: "n1"})
	p, err := g.Ping(shut, &gatepb.PingRequest{Payload: []byte("to and fro")})
	if err != nil || string(p.Payload) != "to and fro" || p.Jobs != 0 {
		t.Fatalf("%v, %v", p, err)
	}
	for _, c := range []struct {
		node overlay.NodeID
		want string
	}{
		{overlay.NodeID{Site: "nowhere", Name: "n1"}, "the gate of nowhere/n1"},
		{overlay.NodeID{Site: "shut", Name: "UPPER/CASE"}, "allowed are"},
	} {
		ctx, cancel := context.WithTimeout(gate.At(w.ctx, c.node), 2*time.Second)
		_, err := g.Ping(ctx, &gatepb.PingRequest{})
		cancel()
		if err == nil || !strings.Contains(err.Error(), c.want) && !strings.Contains(err.Error(), "DeadlineExceeded") {
			t.Errorf("a ping to %v: %v", c.node, err)
		}
	}
	c := w.talk("closed/n2", "shut/n1", newKey(t, "calls"))
	c.ask(1)
	c.start(&gatepb.Start{Argv: []string{"sh", "-c", "echo up; sleep 1000"}})
	c.hearOutput()
	list, err := g.Jobs(shut, &gatepb.JobsRequest{})
	if err != nil || len(list.Jobs) != 1 || list.Jobs[0].Job != string(c.key.ID()) || list.Jobs[0].By != "closed/n2" || len(list.Jobs[0].Argv) != 3 {
		t.Errorf("the jobs are %v, %v", list, err)
	}
	far, err := g.Measure(shut, &gatepb.MeasureRequest{Nodes: []string{"closed/n1", "shut/n1"}})
	if err != nil || len(far.Distances) != 2 || far.Distances[0].LatencyNs < uint64(4*time.Millisecond) || far.Distances[1].LatencyNs >= uint64(time.Millisecond) {
		t.Errorf("shut/n1 measures %v, %v", far, err)
	}
	if r, err := g.Kill(shut, &gatepb.KillRequest{Job: string(c.key.ID())}); err != nil || r.Reservations != 1 {
		t.Errorf("kill: %v, %v", r, err)
	}
	if all := c.listen(); all.exits[0].GetSignal() != "TERM" || all.over.Ended != "ended by root@closed/n2" {
		t.Errorf("%+v", all)
	}
	none := w.talk("closed/n1", "closed/n2", newKey(t, "none"))
	none.say(&gatepb.ToNode{Say: &gatepb.ToNode_Cancel{Cancel: &gatepb.Cancel{Key: none.id}}})
	none.end() // nobody answers at a node that offers nothing
	hosts, err := desk.Hosts(w.ctx, &gatepb.HostsRequest{})
	if err != nil || len(hosts.Hosts) != 3 {
		t.Errorf("the hosts are %v, %v", hosts, err)
	}
}

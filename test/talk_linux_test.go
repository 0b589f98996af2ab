package test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"strings"

	"google.golang.org/grpc"

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

// hearOutput hears the next output of a job, and passes everything else over.
func (t *talk) hearOutput() (event uint64, text string) {
	t.w.t.Helper()
	for {
		if m := t.hear(); m.GetOutput() != nil {
			return m.Event, string(m.GetOutput().Data)
		}
	}
}

// hearAll listens until the job has written a line with the words, and returns what it
// wrote so far.
func (t *talk) hearAll(words string) string {
	t.w.t.Helper()
	all := ""
	for !strings.Contains(all, words) {
		m := t.hear()
		if m.Event != 0 {
			t.ack(m.Event)
		}
		all += string(m.GetOutput().GetData())
		if e := m.GetExited(); e != nil {
			t.w.t.Fatalf("waiting for %q: a rank ended: %v; it wrote:\n%s", words, e, all)
		}
	}
	return all
}

// reopen opens another stream for the same reservation.
func (t *talk) reopen(from, to string) *talk {
	t.w.t.Helper()
	next := t.w.talk(from, to, t.key)
	next.id, next.hold = t.id, t.hold
	return next
}

// again goes on with a conversation that was broken off.
func (t *talk) again(from, to string) *talk {
	t.w.t.Helper()
	c := t.w.talk(from, to, t.key)
	c.id, c.hold = t.id, t.hold
	c.say(&gatepb.ToNode{Say: &gatepb.ToNode_Attach{Attach: &gatepb.Attach{Key: c.id, Hold: c.hold}}})
	expect(c, (*gatepb.ToSubmitter).GetAttached)
	return c
}

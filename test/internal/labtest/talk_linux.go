package labtest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"strings"

	"google.golang.org/grpc"

	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/launch/nodeservice"
	"github.com/isthmus-grid/isthmus/launch/nodeservice/nodepb"
	"github.com/isthmus-grid/isthmus/launch/stage"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Talk is a hand-written conversation of a program at one node with the job agent of another.
type Talk struct {
	w      *World
	Key    jobkey.Key
	ID     []byte // of the reservation
	Hold   *nodepb.Hold
	Conn   *grpc.ClientConn
	Stream nodepb.NodeService_ConverseClient
	End    context.CancelFunc // breaks the stream
}

// Talk opens a conversation and sends nothing yet.
func (w *World) Talk(from, to string, key jobkey.Key) *Talk {
	w.T.Helper()
	conn, err := nodeservice.Connect(w.Socket(from))
	if err != nil {
		w.T.Fatal(err)
	}
	w.T.Cleanup(func() { conn.Close() })
	node, err := overlay.ParseNodeID(to)
	if err != nil {
		w.T.Fatal(err)
	}
	ctx, end := context.WithCancel(nodeservice.At(w.Ctx, node))
	w.T.Cleanup(end)
	stream, err := nodepb.NewNodeServiceClient(conn).Converse(ctx)
	if err != nil {
		w.T.Fatal(err)
	}
	t := &Talk{w: w, Key: key, ID: make([]byte, 16), Conn: conn, Stream: stream, End: end}
	rand.Read(t.ID)
	return t
}

// BookedTalk is a Talk with a node that holds a process. At first there may be none: a daemon that
// has just lost the session with the node takes a moment to notice.
func (w *World) BookedTalk(from, to, job string) (t *Talk) {
	w.T.Helper()
	w.Until(to+" to be booked", func() bool {
		t = w.Talk(from, to, NewKey(w.T, job))
		t.Request(1)
		if m, err := t.Stream.Recv(); err == nil && m.GetOk() != nil {
			t.Hold = m.GetOk().Hold
			return true
		}
		t.End()
		t.Conn.Close() // Cleanup would close hundreds too late
		return false
	})
	return t
}

// Say sends a message; an error shows in the answer.
func (t *Talk) Say(m *nodepb.ToNode) { t.Stream.Send(m) }

// Hear returns the next message.
func (t *Talk) Hear() *nodepb.ToSubmitter {
	t.w.T.Helper()
	m, err := t.Stream.Recv()
	if err != nil {
		t.w.T.Fatalf("waiting for an answer: %v", err)
	}
	return m
}

// Expect receives a message and fails unless get finds the expected part in it.
func Expect[T comparable](t *Talk, get func(*nodepb.ToSubmitter) T) T {
	t.w.T.Helper()
	m := t.Hear()
	got := get(m)
	var none T
	if got == none {
		t.w.T.Fatalf("the node says %v", m)
	}
	return got
}

// Request asks the node to hold the given number of processes.
func (t *Talk) Request(processes int) {
	t.Say(&nodepb.ToNode{Say: &nodepb.ToNode_Ask{Ask: &nodepb.Ask{Key: t.ID, Job: string(t.Key.ID()), Processes: uint32(processes)}}})
}

// Ask is Request, and returns what the node grants.
func (t *Talk) Ask(processes int) *nodepb.OK {
	t.w.T.Helper()
	t.Request(processes)
	ok := Expect(t, (*nodepb.ToSubmitter).GetOk)
	t.Hold = ok.Hold
	return ok
}

// StageFile stages a file, and returns how many chunks were missing.
func (t *Talk) StageFile(name string, content []byte) int {
	t.w.T.Helper()
	m := t.Describe(name, content)
	answer := t.Hear()
	if answer.GetStored() != nil {
		return 0
	}
	missing := answer.GetMissing()
	if missing == nil {
		t.w.T.Fatalf("asked for %s, the node says %v", name, answer)
	}
	for _, sum := range missing.Sums {
		for i, s := range m.Chunks {
			if bytes.Equal(s[:], sum) {
				t.Say(&nodepb.ToNode{Say: &nodepb.ToNode_Chunk{Chunk: &nodepb.Chunk{Sum: sum, Data: content[i*stage.ChunkSize : min(len(content), (i+1)*stage.ChunkSize)]}}})
			}
		}
	}
	Expect(t, (*nodepb.ToSubmitter).GetStored)
	return len(missing.Sums)
}

// Describe sends the manifest of a file.
func (t *Talk) Describe(name string, content []byte) stage.Manifest {
	t.w.T.Helper()
	m, err := stage.Describe(bytes.NewReader(content))
	if err != nil {
		t.w.T.Fatal(err)
	}
	say := &nodepb.Manifest{Name: []byte(name), Mode: 0o700, Size: uint64(m.Size)}
	for _, sum := range m.Chunks {
		say.Sums = append(say.Sums, append([]byte(nil), sum[:]...))
	}
	t.Say(&nodepb.ToNode{Say: &nodepb.ToNode_Manifest{Manifest: say}})
	return m
}

// Start starts ranks of a job of size, and commits.
func (t *Talk) Start(s *nodepb.Start) (folder string) {
	t.w.T.Helper()
	t.SayStart(s)
	folder = string(Expect(t, (*nodepb.ToSubmitter).GetStarted).Folder)
	t.Say(&nodepb.ToNode{Say: &nodepb.ToNode_Commit{Commit: &nodepb.Commit{Hold: t.Hold}}})
	return folder
}

// SayStart sends what Start sends, without waiting for an answer.
func (t *Talk) SayStart(s *nodepb.Start) {
	s.Hold, s.JobKey = t.Hold, t.Key.String()
	if s.Processes == nil {
		s.Processes = []*nodepb.Process{{}}
	}
	s.Size = max(s.Size, 1)
	t.Say(&nodepb.ToNode{Say: &nodepb.ToNode_Start{Start: s}})
}

// Ack acknowledges the events up to this one.
func (t *Talk) Ack(event uint64) {
	t.Say(&nodepb.ToNode{Say: &nodepb.ToNode_Ack{Ack: &nodepb.Ack{Event: event}}})
}

// JobReport is the complete output of a job.
type JobReport struct {
	Out, Err string
	Exits    map[uint32]*nodepb.Exited
	Files    map[string]string
	Over     *nodepb.Over
	last     uint64
}

// Listen receives events until the job is over, and acknowledges them.
func (t *Talk) Listen() JobReport {
	t.w.T.Helper()
	all := JobReport{Exits: map[uint32]*nodepb.Exited{}, Files: map[string]string{}}
	for {
		m, err := t.Stream.Recv()
		if errors.Is(err, io.EOF) && all.Over != nil {
			return all
		}
		if err != nil {
			t.w.T.Fatalf("listening: %v; until then: %+v", err, all)
		}
		if m.Event != 0 {
			if m.Event <= all.last {
				t.w.T.Errorf("event %d comes after %d", m.Event, all.last)
			}
			all.last = m.Event
			t.Ack(m.Event)
		}
		switch say := m.Say.(type) {
		case *nodepb.ToSubmitter_Output:
			if say.Output.Stderr {
				all.Err += string(say.Output.Data)
			} else {
				all.Out += string(say.Output.Data)
			}
		case *nodepb.ToSubmitter_Exited:
			all.Exits[say.Exited.Process.Rank] = say.Exited
		case *nodepb.ToSubmitter_File:
			all.Files[string(say.File.Name)] += string(say.File.Data) + string(say.File.Fault)
		case *nodepb.ToSubmitter_Over:
			all.Over = say.Over
		}
	}
}

// HearOutput receives the next output of a job, and skips everything else.
func (t *Talk) HearOutput() (event uint64, text string) {
	t.w.T.Helper()
	for {
		if m := t.Hear(); m.GetOutput() != nil {
			return m.Event, string(m.GetOutput().Data)
		}
	}
}

// HearUntil receives events until the job has written a line that contains the words, and returns
// its output so far.
func (t *Talk) HearUntil(words string) string {
	t.w.T.Helper()
	all := ""
	for !strings.Contains(all, words) {
		m := t.Hear()
		if m.Event != 0 {
			t.Ack(m.Event)
		}
		all += string(m.GetOutput().GetData())
		if e := m.GetExited(); e != nil {
			t.w.T.Fatalf("waiting for %q: a rank ended: %v; it wrote:\n%s", words, e, all)
		}
	}
	return all
}

// Reopen opens another stream for the same reservation.
func (t *Talk) Reopen(from, to string) *Talk {
	t.w.T.Helper()
	next := t.w.Talk(from, to, t.Key)
	next.ID, next.Hold = t.ID, t.Hold
	return next
}

// Reattach continues a conversation that was interrupted.
func (t *Talk) Reattach(from, to string) *Talk {
	t.w.T.Helper()
	c := t.w.Talk(from, to, t.Key)
	c.ID, c.Hold = t.ID, t.Hold
	c.Say(&nodepb.ToNode{Say: &nodepb.ToNode_Attach{Attach: &nodepb.Attach{Key: c.ID, Hold: c.Hold}}})
	Expect(c, (*nodepb.ToSubmitter).GetAttached)
	return c
}

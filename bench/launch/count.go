package launch

import (
	"context"
	"fmt"
	"io"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/isthmus-grid/isthmus/internal/job/ranks"
	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/launch/allocate"
	"github.com/isthmus-grid/isthmus/launch/nodeservice"
	"github.com/isthmus-grid/isthmus/launch/nodeservice/nodepb"
	"github.com/isthmus-grid/isthmus/launch/submit"
)

// A step of a launch is the messages that belong to it.
type step struct {
	name     string
	messages []string // names of fields of ToNode and ToSubmitter
}

// steps, in the order in which they occur.
var steps = []step{
	{"book", []string{"ask", "ok", "nok", "renew"}},
	{"cancel", []string{"cancel", "cancelled", "refused"}},
	{"stage", []string{"manifest", "missing", "chunk", "stored"}},
	{"start", []string{"start", "started"}},
	{"commit", []string{"commit", "committed"}},
	{"run", []string{"input", "taken", "signal", "output", "exited", "file", "over", "ack", "attach", "attached", "fault", "dead", "join", "taken_for_dead"}},
}

// sum counts the messages of a step.
func (s step) sum(counts map[string]int) (n int) {
	for _, m := range s.messages {
		n += counts[m]
	}
	return n
}

// ledger counts messages by name. Safe for concurrent use.
type ledger struct {
	mu     sync.Mutex // guards counts
	counts map[string]int
}

// note counts one ToNode or ToSubmitter.
func (l *ledger) note(m any) {
	var name string
	switch m := m.(type) {
	case *nodepb.ToNode:
		name = fieldSet(m)
	case *nodepb.ToSubmitter:
		name = fieldSet(m)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts[name]++
}

// counted is a stream whose messages are counted.
type counted struct {
	grpc.ClientStream
	ledger *ledger
}

func (c counted) SendMsg(m any) error {
	err := c.ClientStream.SendMsg(m)
	if err == nil {
		c.ledger.note(m)
	}
	return err
}

func (c counted) RecvMsg(m any) error {
	err := c.ClientStream.RecvMsg(m)
	if err == nil {
		c.ledger.note(m)
	}
	return err
}

// countedConn is a connection with a helper whose streams are counted.
type countedConn struct {
	grpc.ClientConnInterface
	ledger *ledger
}

func (c countedConn) NewStream(ctx context.Context, d *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	s, err := c.ClientConnInterface.NewStream(ctx, d, method, opts...)
	if err != nil {
		return nil, err
	}
	return counted{s, c.ledger}, nil
}

// count submits a job from this process, through the helper of the submitting node, and returns
// the number of messages by name.
func (o StartOptions) count(ctx context.Context, g *grid.Grid, n int) (map[string]int, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not done after %v", patience))
	defer cancel()
	conn, err := nodeservice.Connect(g.Socket("s1/n1"))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	key, err := jobkey.New("count")
	if err != nil {
		return nil, err
	}
	l := &ledger{counts: map[string]int{}}
	_, err = submit.Run(ctx, submit.NewGrid(countedConn{conn, l}), &submit.Job{
		Key: key, Argv: []string{"true"}, Place: allocate.Job{Ranks: n, Copies: 1}, Strategy: "spread",
		Output: ranks.Lines(io.Discard, io.Discard),
	})
	if err != nil {
		return nil, fmt.Errorf("a job of %d ranks to be counted: %w", n, err)
	}
	return l.counts, nil
}

// fieldSet returns the name of the field of say that is set.
func fieldSet(m proto.Message) string {
	r := m.ProtoReflect()
	if f := r.WhichOneof(r.Descriptor().Oneofs().ByName("say")); f != nil {
		return string(f.Name())
	}
	return ""
}

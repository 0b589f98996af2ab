package mpilib

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
)

// moment is an event of a timeline, in the format that viewers read.
type moment struct {
	Phase string         `json:"ph"`
	Name  string         `json:"name"`
	Time  float64        `json:"ts"`
	For   float64        `json:"dur"`
	PID   int            `json:"pid"`
	TID   int            `json:"tid"`
	ID    string         `json:"id"`
	Args  map[string]any `json:"args"`
}

func readTimeline(t *testing.T, name string) (events []moment) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(strings.TrimSuffix(string(text), ",\n")+"]"), &events); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return events
}

// checkTimeline checks the events of one clock: spans of a thread do not overlap, arrows begin and
// end at spans, and no message arrives before it was sent. Clocks are aligned by messages, whose delay bounds
// the precision, given in microseconds.
func checkTimeline(t *testing.T, events []moment, aligned float64) (spans map[string]int, arrows int) {
	t.Helper()
	const same = 0.5 // the precision of current times as JSON numbers of microseconds
	spans = map[string]int{}
	starts := map[string]moment{}
	ends := map[[2]int]float64{} // of the last span of a thread: spans are written in order
	for _, e := range events {
		switch e.Phase {
		case "X":
			spans[e.Name]++
			thread := [2]int{e.PID, e.TID}
			if e.Time+same < ends[thread] {
				t.Fatalf("%+v begins before the one before has ended, at %f", e, ends[thread])
			}
			ends[thread] = e.Time + e.For
		case "s":
			if _, twice := starts[e.ID]; twice {
				t.Fatalf("two messages have the name %s", e.ID)
			}
			starts[e.ID] = e
		}
		if e.Phase == "s" || e.Phase == "f" {
			around := false
			for _, o := range events {
				around = around || o.Phase == "X" && o.PID == e.PID && o.TID == e.TID && o.Time <= e.Time+same && e.Time <= o.Time+o.For+same
			}
			if !around {
				t.Fatalf("no span is around %+v", e)
			}
		}
	}
	for _, e := range events {
		if e.Phase != "f" {
			continue
		}
		s, ok := starts[e.ID]
		if !ok || s.Time > e.Time+aligned || s.PID == e.PID && !strings.HasPrefix(e.ID, fmt.Sprintf("%d-%d.", e.PID, e.PID)) {
			t.Fatalf("%+v was sent by %+v", e, s)
		}
		arrows++
	}
	return spans, arrows
}

func TestTimeline(t *testing.T) {
	synctest.Test(t, timelineOfThree)
}

func timelineOfThree(t *testing.T) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "all.json")
	const n = 3
	memoryWorld(t, n, func(ctx context.Context, c *Comm) error {
		right, left := (c.Rank()+1)%n, (c.Rank()+n-1)%n
		for i := range 10 {
			in := Irecv(c, make([]int, 1), AnySource, i)
			if err := Send(ctx, c, []int{1}, right, i); err != nil {
				return err
			}
			if _, err := in.Wait(ctx); err != nil {
				return err
			}
		}
		in := Irecv(c, make([]byte, 1<<20), left, 99)
		out := Isend(c, make([]byte, 1<<20), right, 99)
		if _, err := Waitall(ctx, in, out); err != nil {
			return err
		}
		if err := Allreduce(ctx, c, []int{1}, make([]int, 1), Sum); err != nil {
			return err
		}
		made, err := c.Dup(ctx)
		if err != nil {
			return err
		}
		return errors.Join(Barrier(ctx, made), made.Free())
	}, nil, WithTrace(name))
	events := readTimeline(t, name)
	spans, arrows := checkTimeline(t, events, 1)
	for name, least := range map[string]int{"Send": 10 * n, "Irecv": 11 * n, "Isend": n, "Allreduce": n, "Barrier": n, "Dup": n} {
		if spans[name] < least {
			t.Errorf("%d spans %s, want %d: %v", spans[name], name, least, spans)
		}
	}
	if arrows < 11*n+2*n { // the program's messages, and some of the three collective calls'
		t.Errorf("%d arrows", arrows)
	}
	titles, links := 0, 0
	for _, e := range events {
		if e.Phase == "M" && e.Name == "process_name" && e.Args["name"] == fmt.Sprintf("rank %d", e.PID) {
			titles++
		}
		if strings.HasPrefix(e.Name, "link to rank ") && strings.HasSuffix(e.Name, ": direct") {
			links++
		}
		if strings.HasPrefix(e.Name, "Irecv") && !strings.HasPrefix(e.Args["line"].(string), "mpilib/timeline_test.go:") {
			t.Errorf("%+v", e)
		}
	}
	if titles != n || links < n {
		t.Errorf("%d titles and %d links", titles, links)
	}
}

func TestTimelineWithoutAFolder(t *testing.T) {
	_, err := Init(t.Context(), WithTrace(filepath.Join(t.TempDir(), "no", "t.json")))
	if err == nil || !strings.HasPrefix(err.Error(), "mpilib: Init: ISTHMUS_TRACE: ") {
		t.Errorf("%v", err)
	}
}

// A wait for a partition, which has no Request, is in the timeline, too.
func TestTimelineOfPartitions(t *testing.T) {
	dir := t.TempDir()
	TestWorld(t, 2, func(ctx context.Context, c *Comm) error {
		buf := make([]int32, 4)
		if c.Rank() == 0 {
			s, err := PsendInit(c, buf, 2, 1, 1)
			if err != nil {
				return err
			}
			if _, err := Recv(ctx, c, buf[:0], 1, 2); err != nil { // so that the receiver is waiting
				return err
			}
			_, err = s.Wait(ctx)
			err = errors.Join(err, s.Start(), s.PreadyRange(0, 1))
			_, waitErr := s.Wait(ctx)
			return errors.Join(err, waitErr, s.Free())
		}
		r, err := PrecvInit(c, buf, 2, 0, 1)
		if err != nil {
			return err
		}
		err = errors.Join(r.Start(), Send(ctx, c, buf[:0], 0, 2))
		_, waitErr := r.Wait(ctx)
		return errors.Join(err, waitErr, r.Free())
	}, WithTrace(dir))
	checkTimeline(t, readTimeline(t, filepath.Join(dir, "rank-1.json")), 0)
}

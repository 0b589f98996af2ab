package nodeservice

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/testkit"
	"github.com/isthmus-grid/isthmus/launch/jobagent"
	"github.com/isthmus-grid/isthmus/launch/nodeservice/nodepb"
	"github.com/isthmus-grid/isthmus/launch/reserve"
	"github.com/isthmus-grid/isthmus/launch/stage"
	"github.com/isthmus-grid/isthmus/overlay"
)

// A job from the Ask to the last acknowledgement.
func TestAJob(t *testing.T) {
	h := newHost(t, nil)
	t.Setenv("ISTHMUS_TEST_SECRET", "told")
	c := h.talk().booked()
	c.brings("bin/prog", "#!/bin/sh\nread word\necho $ISTHMUS_RANK/$ISTHMUS_SIZE $ISTHMUS_COPY $ISTHMUS_GROUPS $MINE $word$ISTHMUS_TEST_SECRET\necho $ISTHMUS_HELPER >&2\n[ $ISTHMUS_RANK = 0 ] || kill -9 $$\nmkdir out; echo done >out/file\n")
	if m := c.start(&nodepb.Start{
		Argv: nodepb.Bytes([]string{"bin/prog"}), Environment: nodepb.Bytes([]string{"MINE=yours", "ISTHMUS_HELPER=/elsewhere"}), Size: 6, Groups: "a:2,b:4", Input: true,
		Processes: []*nodepb.Process{{Rank: 0}, {Rank: 5, Copy: 2}}, Outputs: nodepb.Bytes([]string{"out/*", "none"}),
	}); !strings.HasPrefix(string(m.GetStarted().GetFolder()), h.jobs()) {
		t.Fatalf("the node says %v", m)
	}
	c.commit()
	c.say(&nodepb.ToNode{Say: &nodepb.ToNode_Input{Input: &nodepb.Input{Data: []byte("well\nleft over"), End: true}}})
	got := c.listen()
	for _, want := range []string{"0/6 a:2,b:4 yours well\n", "5/6 2 a:2,b:4 yours\n"} {
		if !strings.Contains(got.out, want) {
			t.Errorf("%q does not say %q", got.out, want)
		}
	}
	if got.err != "/nowhere\n/nowhere\n" || got.exits[0].GetStatus() != 0 || got.exits[5].GetStatus() != 137 || got.exits[5].GetSignal() != "KILL" || got.ended != "" || !got.over {
		t.Errorf("%+v", got)
	}
	if got.files["out/file"] != "done\n" || !strings.Contains(got.files["none"], "no such file") {
		t.Errorf("the files are %q", got.files)
	}
	if err := testkit.Receive(t, "the conversation's end", c.ended); err != nil {
		t.Errorf("the conversation ended with %v", err)
	}
	h.empty()
}

// What comes from a system, or goes to it, is bytes: names of programs and files, words, variables, input,
// output and errors.
func TestBytesAreBytes(t *testing.T) {
	h := newHost(t, nil)
	for _, odd := range []string{"\xff", "a\xc3", "\xed\xa0\x80", "\x1b\n", "é"} {
		c := h.talk().booked()
		c.brings("bin/prog"+odd, "#!/bin/sh\nprintf %s \"$1$WORD\"; printf %s \"$1\" >&2; mkdir \"$1\"; cat >\"$1/out$1\"\n")
		m := c.start(&nodepb.Start{
			Argv: nodepb.Bytes([]string{"./bin/prog" + odd, odd}), Environment: nodepb.Bytes([]string{"WORD=" + odd + "x", "NAME" + odd + "=1"}),
			Input: true, Outputs: nodepb.Bytes([]string{odd + "/out*", odd + "none"}),
		})
		if m.GetStarted() == nil {
			t.Fatalf("%q: %v", odd, m)
		}
		c.commit()
		c.say(&nodepb.ToNode{Say: &nodepb.ToNode_Input{Input: &nodepb.Input{Data: []byte(odd), End: true}}})
		got := c.listen()
		if got.out != odd+odd+"x" || got.err != odd || got.files[odd+"/out"+odd] != odd || !strings.Contains(got.files[odd+"none"], "no such file") || got.exits[0].GetStatus() != 0 {
			t.Errorf("%q: %q", odd, fmt.Sprint(got))
		}
		c = h.talk().booked()
		c.runs("", func(s *nodepb.Start) { s.Argv = nodepb.Bytes([]string{"./none" + odd}) })
		if got := c.listen(); got.exits[0].GetStatus() != 127 || !strings.Contains(string(got.exits[0].GetText()), "none"+odd) {
			t.Errorf("%q: %q", odd, fmt.Sprint(got))
		}
	}
	h.empty()
}

// A message that its agent cannot be sent ends a job with that reason: another connection would not help.
func TestAMessageThatCannotBeCarried(t *testing.T) {
	h := newHost(t, nil)
	c := h.talk().booked()
	c.runs("sleep 1000", nil)
	c.say(&nodepb.ToNode{Say: &nodepb.ToNode_Signal{Signal: &nodepb.Signal{Name: "USR1", Ranks: make([]uint32, 6<<20)}}})
	if got := c.listen(); !strings.Contains(got.ended, "a message that cannot be carried") || !got.over {
		t.Errorf("%+v", got)
	}
	h.empty()
}

// A process that cannot start is reported like one that ended, and the others run.
func TestProgramsThatCannotStart(t *testing.T) {
	h := newHost(t, nil)
	for _, c := range []struct {
		argv   string
		limits []*nodepb.Limit
		status uint32
		text   string
	}{
		{"./nothing", nil, 127, "no such file"},
		{"nothing-of-that-name", nil, 127, "not found"},
		{"./text", nil, 126, "permission denied"},
		{"true", []*nodepb.Limit{{Name: "core", Value: 0}}, 0, ""},
		{"./nothing", []*nodepb.Limit{{Name: "core", Value: 0}}, 127, "no such file"},
	} {
		talk := h.talk().booked()
		talk.say(&nodepb.ToNode{Say: &nodepb.ToNode_Manifest{Manifest: &nodepb.Manifest{Name: []byte("text"), Mode: 0o600}}})
		if m := talk.hear(); m.GetStored() == nil {
			t.Fatalf("an empty file: the node says %v", m)
		}
		talk.start(&nodepb.Start{Argv: nodepb.Bytes([]string{c.argv}), Limits: c.limits})
		talk.commit()
		got := talk.listen()
		if e := got.exits[0]; e.GetStatus() != c.status || !strings.Contains(string(e.GetText()), c.text) || !got.over {
			t.Errorf("%s: %+v", c.argv, got)
		}
	}
}

// Limits apply from the program's first instruction on.
func TestLimits(t *testing.T) {
	h := newHost(t, nil)
	c := h.talk().booked()
	c.runs("ulimit -n; ulimit -H -n; ulimit -c", func(s *nodepb.Start) {
		s.Limits = []*nodepb.Limit{{Name: "nofile", Value: 77}, {Name: "core", Value: 0}}
	})
	if got := c.listen(); got.out != "77\n77\n0\n" {
		t.Errorf("%+v", got)
	}
	c = h.talk().booked()
	if m := c.start(&nodepb.Start{Argv: nodepb.Bytes([]string{"true"}), Limits: []*nodepb.Limit{{Name: "luck"}}}); m.GetRefused().GetReason() != string(reserve.Invalid) {
		t.Errorf("the node says %v", m)
	}
}

// A submitter whose stream breaks attaches again and misses nothing, in either direction.
func TestAttach(t *testing.T) {
	h := newHost(t, nil)
	c := h.talk().booked()
	c.runs("echo one; read a; echo $a; read b; echo $b; exit 3", func(s *nodepb.Start) { s.Input = true })
	for c.hear().GetOutput() == nil {
	}
	seen := c.last
	c.hang() // one event is received, and not acknowledged
	testkit.Receive(t, "the conversation's end", c.ended)
	c.open()
	m := c.attach(0)
	if a := m.GetAttached(); a == nil || !a.Started || !a.Committed || a.Taken != 0 {
		t.Fatalf("attached: the node says %v", m)
	}
	m = c.hear()
	for m.GetTaken() != nil { // rank 0 waits for input
		m = c.hear()
	}
	if string(m.GetOutput().GetData()) != "one\n" || m.Event != seen {
		t.Errorf("after attaching, the node says %v", m)
	}
	c.say(&nodepb.ToNode{Say: &nodepb.ToNode_Input{Input: &nodepb.Input{Data: []byte("two\nth")}}})
	for out, taken := "", uint64(0); out != "two\n" || taken < 6; { // it is counted after it was written, and may have been echoed before
		m := c.hear()
		out += string(m.GetOutput().GetData())
		taken = max(taken, m.GetTaken().GetBytes())
	}
	first := *c
	c.open() // while the other stream exists, which is replaced
	m = c.attach(c.last)
	if a := m.GetAttached(); a == nil || a.Taken != 6 {
		t.Fatalf("attached: the node says %v", m)
	}
	for m := first.hear(); m.GetFault().GetCode() != nodepb.Fault_REPLACED; m = first.hear() {
		if m == nil {
			t.Fatal("the stream that was replaced ended without a word")
		}
	}
	c.say(&nodepb.ToNode{Say: &nodepb.ToNode_Input{Input: &nodepb.Input{Offset: 4, Data: []byte("three\n"), End: true}}})
	got := c.listen()
	if got.out != "three\n" || got.exits[0].GetStatus() != 3 || !got.over {
		t.Errorf("%+v", got)
	}
	h.empty()
	c.open()
	if m := c.attach(0); m.GetRefused().GetReason() != string(reserve.Done) {
		t.Errorf("after the end, attached: the node says %v", m)
	}
}

// The node says when rank 0, or what it has started, waits for input, once for each number of bytes that it
// has read, and says so again to a stream that attaches. Of a process that reads none it says nothing.
func TestInputThatIsWaitedFor(t *testing.T) {
	h := newHost(t, nil)
	for script, want := range map[string][]uint64{
		"read a; read b; echo $a $b":  {0, 4},
		"sh -c 'read a; cat'; echo x": {0, 4, 6},
		"echo no input":               nil,
		"exec <&-; read a; echo none": nil,
	} {
		c := h.talk()
		if m := c.ask(1); !m.GetOk().GetWants() {
			t.Fatalf("asked, the node says %v", m)
		}
		c.runs(script, func(s *nodepb.Start) { s.Input = true })
		sent := 0
		var got []uint64
		for over := false; !over; {
			m := c.hear()
			if m == nil {
				break
			}
			if m.GetTaken().GetWants() {
				got = append(got, m.GetTaken().Bytes)
				if len(got) == 1 { // the same to the next stream
					c.hang()
					testkit.Receive(t, "the conversation's end", c.ended)
					c.open()
					c.attach(c.last)
					for m = c.hear(); !m.GetTaken().GetWants() || m.GetTaken().Bytes != got[0]; m = c.hear() {
						if m == nil {
							t.Fatalf("%s: the next stream does not hear of it", script)
						}
					}
				}
				data := "one\n"
				if len(got) > 1 {
					data = "2\n"
				}
				c.say(&nodepb.ToNode{Say: &nodepb.ToNode_Input{Input: &nodepb.Input{Offset: uint64(sent), Data: []byte(data), End: len(got) == len(want)}}})
				sent += len(data)
			}
			if m.Event != 0 {
				c.ack(m.Event)
			}
			over = m.GetOver() != nil
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: it is said to wait after %v bytes, want %v", script, got, want)
		}
	}
	h.empty()
}

// A held reservation that is not renewed ends even though the stream exists.
func TestLeaseEnds(t *testing.T) {
	h := newHost(t, func(o *Options) { o.Policy.Lease = 30 * time.Millisecond })
	c := h.talk().booked()
	if got := c.listen(); got.over {
		t.Errorf("%+v", got)
	}
	h.empty()
	c.open()
	if m := c.ask(1); m.GetNok().GetReason() != string(reserve.Expired) {
		t.Errorf("asked again with the key: %v", m)
	}
	c.open()
	if m := c.attach(0); m.GetRefused().GetReason() != string(reserve.Expired) {
		t.Errorf("attached with the key: %v", m)
	}
}

// A key is for one reservation of one user.
func TestKeys(t *testing.T) {
	h := newHost(t, nil)
	c := h.talk().booked()
	thief := h.talk()
	thief.id, thief.job, thief.who.User, thief.hold = c.id, c.job, "mallory", c.hold
	if m := thief.ask(4); m.GetNok().GetReason() != string(reserve.Used) {
		t.Errorf("another's key, asked: %v", m)
	}
	thief.open()
	if m := thief.attach(0); m.GetRefused() == nil {
		t.Errorf("another's key, attached: %v", m)
	}
	thief.open()
	thief.cancel()
	if m := thief.hear(); m.GetRefused().GetWhat() != nodepb.Refused_CANCEL {
		t.Errorf("another's key, cancelled: %v", m)
	}
	other := h.talk()
	if m := c.start(&nodepb.Start{Argv: nodepb.Bytes([]string{"true"}), Size: 1, Processes: []*nodepb.Process{{Rank: 1}}}); m.GetRefused().GetReason() != string(reserve.Invalid) {
		t.Errorf("a rank beyond the job: %v", m)
	}
	mine := c.job
	c.job = other.job
	if m := c.start(&nodepb.Start{Argv: nodepb.Bytes([]string{"true"})}); !strings.Contains(string(m.GetRefused().GetText()), "the key is that of job") {
		t.Errorf("another job's key: %v", m)
	}
	c.job = mine
	if m := c.start(&nodepb.Start{Argv: nodepb.Bytes([]string{"true"}), Size: 9, Processes: []*nodepb.Process{{Rank: 1}, {Rank: 2}, {Rank: 3}, {Rank: 4}, {Rank: 5}}}); m.GetRefused().GetReason() != string(reserve.TooMany) {
		t.Errorf("more than were held: %v", m)
	}
	c.runs("true", nil)
	c.listen()
	h.empty()
	c.open()
	if m := c.ask(4); m.GetNok().GetReason() != string(reserve.Done) {
		t.Errorf("replayed: %v", m)
	}
}

// Cancelled is sent when nothing is left.
func TestCancel(t *testing.T) {
	h := newHost(t, nil)
	c := h.talk().booked()
	c.brings("file", "content")
	c.runs("echo up; sleep 1000 & wait; wait; sleep 1000", nil)
	for c.hear().GetOutput() == nil {
	}
	c.cancel()
	for m := c.hear(); m.GetCancelled() == nil; m = c.hear() {
		if m == nil {
			t.Fatal("the stream ended before Cancelled")
		}
	}
	if left := h.left(); len(left) > 0 {
		t.Errorf("after Cancelled there is %q", left)
	}
	h.empty()
	c.open()
	c.cancel() // does not exist
	if m := c.hear(); m.GetCancelled() == nil {
		t.Errorf("cancelled again: %v", m)
	}
}

// An authorised third party can end a job, and its submitter gets the reason.
func TestKill(t *testing.T) {
	h := newHost(t, nil)
	c := h.talk().booked()
	c.runs("echo up; sleep 1000", nil)
	for c.hear().GetOutput() == nil {
	}
	job := c.job.ID()
	if _, err := h.killJob(Asker{Node: here, User: "bob", UID: 8, Here: true}, job); err == nil || !strings.Contains(err.Error(), "alice@there/n9") {
		t.Errorf("another user ends it: %v", err)
	}
	list, err := h.list(Asker{Node: here, User: "bob", UID: 8, Here: true})
	if err != nil || len(list.Jobs) != 1 || list.Jobs[0].State != "running" || list.Jobs[0].User != "alice" || list.Jobs[0].By != "there/n9" || list.Jobs[0].Argv != nil {
		t.Errorf("the list is %v, %v", list, err)
	}
	r, err := h.killJob(Asker{Node: here, User: "root", Here: true}, job)
	if err != nil || r.Reservations != 1 {
		t.Fatalf("%v, %v", r, err)
	}
	got := c.listen()
	if got.exits[0].GetSignal() != "TERM" || got.ended != "ended by root@here/n1" {
		t.Errorf("%+v", got)
	}
	h.empty()
}

// A node says which of a job's processes run there, and a replica of rank 0 reads the input, whichever.
func TestReplicas(t *testing.T) {
	h := newHost(t, nil)
	c := h.talk().booked()
	c.runs("[ $ISTHMUS_RANK = 0 ] && read word && echo $ISTHMUS_COPY/$ISTHMUS_COPIES $word && read word; kill -9 $$", func(s *nodepb.Start) {
		s.Size, s.Replicas, s.Input = 3, 2, true
		s.Processes = []*nodepb.Process{{Rank: 0, Copy: 1}, {Rank: 2}}
	})
	input := func(offset int, text string, end bool) {
		c.say(&nodepb.ToNode{Say: &nodepb.ToNode_Input{Input: &nodepb.Input{Offset: uint64(offset), Data: []byte(text), End: end}}})
	}
	input(0, "hello\n", false)
	for told := 0; told < 2; {
		m := c.hear()
		if m.GetExited() != nil || string(m.GetOutput().GetData()) == "1/2 hello\n" {
			told++
		}
	}
	testkit.Until(h.t, "the node service to say that replica 1 of rank 0 lives and rank 2 does not", func() bool {
		list, err := h.list(Asker{Node: here})
		if err != nil || len(list.Jobs) != 1 {
			t.Fatalf("%v, %v", list, err)
		}
		j := list.Jobs[0]
		return j.Ranks == 3 && j.Replicas == 2 && len(j.Places) == 1 && j.Places[0].Rank == 0 && j.Places[0].Copy == 1
	})
	input(6, "", true)
	c.listen()
	for what, s := range map[string]*nodepb.Start{
		"replica 2 of a job of 1 ranks":                {Replicas: 2, Processes: []*nodepb.Process{{Copy: 2}}},
		"only one can read the input":                  {Replicas: 2, Input: true, Processes: []*nodepb.Process{{}, {Copy: 1}}},
		"1 ranks of 4294967295 replicas each; at most": {Replicas: 1<<32 - 1},
	} {
		c := h.talk().booked()
		s.Argv = nodepb.Bytes([]string{"true"})
		if m := c.start(s); !strings.Contains(string(m.GetRefused().GetText()), what) {
			t.Errorf("the node says %v, want %s", m, what)
		}
		c.cancel()
	}
}

// The replicas that a pinned rank 0 has not are reported as dead before the processes start, and
// forgotten with the job.
func TestAbsentReplicas(t *testing.T) {
	said := make(chan string, 2)
	h := newHost(t, func(o *Options) {
		o.Dead = func(_ overlay.JobID, ranks []uint32, why string) { said <- fmt.Sprint(ranks, why) }
		o.Forget = func(overlay.JobID) { said <- "forget" }
	})
	c := h.talk().booked()
	c.runs("true", func(s *nodepb.Start) {
		s.Size, s.Replicas = 3, 3
		s.Processes = []*nodepb.Process{{}, {Rank: 1}, {Rank: 2}}
		s.Nodes = []*nodepb.NodeOfJob{
			{Node: here.String(), Ranks: []uint32{0, 1, 2}},
			{Node: "there/n1", Ranks: []uint32{4, 5}}, {Node: "there/n2", Ranks: []uint32{7, 8}},
		}
	})
	c.listen()
	for _, want := range []string{"[3 6]the job has no such replica, as rank 0 is pinned", "forget"} {
		if got := testkit.Receive(t, want, said); got != want {
			t.Errorf("the node service reported %q, want %q", got, want)
		}
	}
}

// Processes that have died, as the submitter says, are reported to those here, and forgotten in the end;
// others cannot be reported.
func TestDeadReplicas(t *testing.T) {
	said := make(chan string, 2)
	stop := filepath.Join(t.TempDir(), "stop")
	h := newHost(t, func(o *Options) {
		o.Dead = func(_ overlay.JobID, ranks []uint32, why string) { said <- fmt.Sprint(ranks, why) }
		o.Forget = func(overlay.JobID) { said <- "forget" }
	})
	dead := func(processes ...uint32) *nodepb.ToNode {
		return &nodepb.ToNode{Say: &nodepb.ToNode_Dead{Dead: &nodepb.Dead{Processes: processes, Why: "killed"}}}
	}
	refused := func(c *talk, processes ...uint32) {
		t.Helper()
		c.say(dead(processes...))
		m := c.hear()
		for m.GetCommitted() != nil { // the answer to what runs sent
			m = c.hear()
		}
		if f := m.GetFault(); f == nil || f.Code != nodepb.Fault_INVALID {
			t.Errorf("the death of %v: %v", processes, f)
		}
	}
	c := h.talk().booked()
	refused(c, 1)
	c.runs("while [ ! -e "+stop+" ]; do sleep 0.01; done", func(s *nodepb.Start) {
		s.Size, s.Replicas = 2, 2
		s.Processes = []*nodepb.Process{{}}
		s.Nodes = []*nodepb.NodeOfJob{{Node: here.String(), Ranks: []uint32{0, 1}}, {Node: "there/n1", Ranks: []uint32{2, 3}}}
	})
	refused(c, 4)
	refused(c, 0, 1, 2, 3, 0)
	c.say(dead(3))
	if got, want := testkit.Receive(t, "the death", said), "[3]its launcher says: killed"; got != want {
		t.Errorf("the node service reported %q, want %q", got, want)
	}
	if err := os.WriteFile(stop, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c.listen()
	if got := testkit.Receive(t, "the end", said); got != "forget" {
		t.Errorf("the node service reported %q", got)
	}
	plain := h.talk().booked()
	plain.runs("sleep 1000", func(s *nodepb.Start) { s.Size, s.Processes = 1, []*nodepb.Process{{}} })
	refused(plain, 0)
	plain.cancel()
	plain.listen()
}

// The end of the node service ends its jobs, and their submitters are told.
func TestKeeperStops(t *testing.T) {
	h := newHost(t, nil)
	c := h.talk().booked()
	c.runs("echo up; sleep 1000", nil)
	for c.hear().GetOutput() == nil {
	}
	held := h.talk().booked()
	stopped := make(chan struct{})
	go func() { h.stop(); close(stopped) }()
	if got := c.listen(); got.exits[0].GetSignal() != "TERM" || !strings.Contains(got.ended, "stopped") {
		t.Errorf("%+v", got)
	}
	held.listen()
	testkit.Receive(t, "the node service's end", stopped)
	if _, err := h.count(); err != ErrStopping {
		t.Errorf("after its end: %v", err)
	}
}

// A node service that ends after it has sent Started, and before its agent knows what to run:
// nothing runs, and the submitter gets the reason as soon as the next node service runs.
func TestKeeperEndsBeforeTheLaunch(t *testing.T) {
	h := newHost(t, func(o *Options) { o.EndJobs = false })
	c := h.talk().booked()
	var b *booking
	h.do(func(time.Time) {
		for _, b = range h.bookings {
		}
	})
	if _, err := b.home(); err != nil {
		t.Fatal(err)
	}
	var link *jobagent.Link
	h.do(func(time.Time) { link, b.agent.link = b.agent.link, nil }) // messages to the agent are lost
	c.runs("echo up", nil)
	if m := c.hear(); m.GetCommitted() == nil {
		t.Fatalf("committed, the node says %v", m)
	}
	stopped := make(chan struct{})
	go func() { h.stop(); close(stopped) }()
	testkit.Until(h.t, "the node service to leave the job", b.agent.isLeft)
	link.Close()
	testkit.Receive(t, "the node service's end", stopped)
	next := newHost(t, func(o *Options) { o.EndJobs, o.Store = false, h.opts.Store })
	c.h = next
	c.open()
	if m := c.attach(0); m.GetAttached() == nil {
		t.Fatalf("attached, the node says %v", m)
	}
	got := c.listen()
	if got.exits[0].GetSignal() != "KILL" || !strings.Contains(got.ended, "before it had the processes started") {
		t.Errorf("%+v", got)
	}
	next.empty()
}

// A job whose agent has died between its files and its start, or was not told what to run, ends with that as the reason.
func TestAgentThatDoesNotLaunch(t *testing.T) {
	h := newHost(t, nil)
	agentOf := func(c *talk) (a *agent) {
		h.do(func(time.Time) { a = h.bookings[reserve.Key(c.id)].agent })
		return a
	}
	c := h.talk().booked()
	c.brings("file", "content")
	a := agentOf(c)
	h.starter.Kill(a.name)
	testkit.Receive(t, "the agent's end", a.gone)
	c.runs("sleep 1000", nil)
	if got := c.listen(); got.exits[0].GetSignal() != "KILL" || !strings.Contains(got.ended, "its job agent was killed") || !got.over {
		t.Errorf("%+v", got)
	}
	c = h.talk().booked()
	c.brings("file", "content")
	a = agentOf(c)
	var link *jobagent.Link
	h.do(func(time.Time) { link, a.link = a.link, nil }) // messages to the agent are lost
	c.runs("sleep 1000", nil)
	for c.hear().GetCommitted() == nil { // the launch is before it
	}
	link.Close()
	if got := c.listen(); got.exits[0].GetSignal() != "KILL" || !strings.Contains(got.ended, "before it had the processes started") || !got.over {
		t.Errorf("%+v", got)
	}
	h.empty()
}

// failsOnce is a Starter that starts no agent at first.
type failsOnce struct {
	ownAccount
	failed bool
}

func (f *failsOnce) Start(who Asker, folder string, s jobagent.Spec) (Account, error) {
	if !f.failed {
		f.failed = true
		return Account{}, errors.New("not now")
	}
	return f.ownAccount.Start(who, folder, s)
}

// An agent that could not be started is started when it is needed again.
func TestAgentThatDoesNotStart(t *testing.T) {
	h := newHost(t, func(o *Options) { o.Starter = &failsOnce{} })
	c := h.talk().booked()
	if m := c.start(&nodepb.Start{Argv: nodepb.Bytes([]string{"true"})}); !strings.Contains(string(m.GetRefused().GetText()), "not now") {
		t.Errorf("the node says %v", m)
	}
	c.runs("echo up", nil)
	if got := c.listen(); got.out != "up\n" || !got.over {
		t.Errorf("%+v", got)
	}
	h.empty()
}

// What a node service has left to the next one it does not remove, whatever is still heard of it.
func TestLeftToTheNext(t *testing.T) {
	h := newHost(t, func(o *Options) { o.EndJobs = false })
	c := h.talk().booked()
	c.runs("sleep 1000", nil)
	for c.hear().GetCommitted() == nil {
	}
	h.do(func(time.Time) {
		b := h.bookings[reserve.Key(c.id)]
		h.leave(b)
		b.isOver("")
		b.release()
		if b.ending {
			t.Error("it removes a job that it has left")
		}
	})
	h.stop()
	next := newHost(t, func(o *Options) { o.EndJobs, o.Store = false, h.opts.Store })
	c.h = next
	c.open()
	if m := c.attach(0); m.GetAttached() == nil {
		t.Errorf("attached, the node says %v", m)
	}
	c.cancel()
	next.empty()
}

func TestSignals(t *testing.T) {
	h := newHost(t, nil)
	c := h.talk().booked()
	c.runs("trap 'echo usr; exit 4' USR1; sleep 1000 & echo up; wait", func(s *nodepb.Start) {
		s.Size, s.Processes = 2, []*nodepb.Process{{Rank: 0}, {Rank: 1}}
	})
	for up := ""; len(up) < len("up\nup\n"); {
		up += string(c.hear().GetOutput().GetData())
	}
	c.say(&nodepb.ToNode{Say: &nodepb.ToNode_Signal{Signal: &nodepb.Signal{Name: "USR1", Ranks: []uint32{1}}}})
	c.say(&nodepb.ToNode{Say: &nodepb.ToNode_Signal{Signal: &nodepb.Signal{Name: "NONE"}}})
	c.say(&nodepb.ToNode{Say: &nodepb.ToNode_Signal{Signal: &nodepb.Signal{Name: "KILL", Ranks: []uint32{0}}}})
	got := c.listen()
	if got.exits[0].GetSignal() != "KILL" || got.exits[1].GetStatus() != 4 || got.out != "usr\n" || len(got.faults) != 1 {
		t.Errorf("%+v", got)
	}
}

// A status above 128 of the program's own has no signal, and a signal always has a name.
func TestStatusAndSignal(t *testing.T) {
	h := newHost(t, nil)
	c := h.talk().booked()
	c.runs("[ $ISTHMUS_RANK = 0 ] || kill -$ISTHMUS_RANK $$; exit 137", func(s *nodepb.Start) {
		s.Size, s.Processes = 65, []*nodepb.Process{{Rank: 0}, {Rank: 9}, {Rank: 40}}
	})
	got := c.listen()
	for rank, want := range map[int]string{0: "137 ", 9: "137 KILL", 40: "168 40"} {
		if e := got.exits[uint32(rank)]; fmt.Sprint(e.GetStatus(), " ", e.GetSignal()) != want {
			t.Errorf("rank %d ended with %d %s, want %s", rank, e.GetStatus(), e.GetSignal(), want)
		}
	}
}

// Files are verified chunk by chunk, and what exceeds the limit is refused.
func TestFilesThatFail(t *testing.T) {
	h := newHost(t, func(o *Options) { o.Limit = 3 << 20 })
	c := h.talk().booked()
	c.manifest("bad", []byte("good content"))
	sum := c.hear().GetMissing().GetSums()[0]
	for range maxTries - 1 {
		c.chunk(sum, []byte("bad content!"))
		if m := c.hear(); len(m.GetMissing().GetSums()) != 1 {
			t.Fatalf("a corrupt chunk: the node says %v", m)
		}
	}
	c.chunk(sum, []byte("bad content!"))
	if m := c.hear(); m.GetFault().GetCode() != nodepb.Fault_CORRUPT || string(m.GetFault().GetName()) != "bad" {
		t.Errorf("a chunk that is corrupt thrice: the node says %v", m)
	}
	for name, code := range map[string]nodepb.Fault_Code{"../up": nodepb.Fault_INVALID, "/etc/passwd": nodepb.Fault_INVALID, "": nodepb.Fault_INVALID} {
		c.manifest(name, []byte("x"))
		if m := c.hear(); m.GetFault().GetCode() != code {
			t.Errorf("a file called %q: the node says %v", name, m)
		}
	}
	c.manifest("big", bytes.Repeat([]byte("x"), 4<<20))
	if m := c.hear(); m.GetFault().GetCode() != nodepb.Fault_FULL {
		t.Errorf("a file that does not fit: the node says %v", m)
	}
	c.say(&nodepb.ToNode{Say: &nodepb.ToNode_Manifest{Manifest: &nodepb.Manifest{Name: []byte("lie"), Size: 1, Sums: [][]byte{make([]byte, 32), make([]byte, 32)}}}})
	if m := c.hear(); m.GetFault().GetCode() != nodepb.Fault_INVALID {
		t.Errorf("more sums than the size has: the node says %v", m)
	}
	c.brings("good", "good content")
	c.runs("cat good; read nothing", nil)
	c.manifest("late", []byte("x"))
	for m := c.hear(); !strings.Contains(string(m.GetFault().GetText()), "after the start"); m = c.hear() {
		if m == nil {
			t.Fatal("a file is taken after the start")
		}
		if m.Event != 0 {
			c.ack(0) // nothing: the node says all again
		}
	}
	c.hang()
	c.open()
	c.attach(0)
	if got := c.listen(); got.out != "good content" {
		t.Errorf("%+v", got)
	}
}

// The sums of a file may arrive in several messages, and chunks that another job staged are reused.
// Naming the sums of what another submitter has staged gives nobody its content.
func TestFilesOfOthers(t *testing.T) {
	h := newHost(t, nil)
	h.talk().booked().brings("secret", "of alice")
	other := h.talk()
	other.who.Node.Name = "n8"
	other.booked().manifest("stolen", []byte("of alice"))
	if m := other.hear(); len(m.GetMissing().GetSums()) != 1 {
		t.Errorf("the node says %v", m)
	}
}

func TestManifestInParts(t *testing.T) {
	h := newHost(t, nil)
	content := append(bytes.Repeat([]byte("a"), stage.ChunkSize), 'b')
	for round := range 2 {
		c := h.talk().booked()
		m, err := stage.Describe(bytes.NewReader(content))
		if err != nil {
			t.Fatal(err)
		}
		for i, sum := range m.Chunks {
			c.say(&nodepb.ToNode{Say: &nodepb.ToNode_Manifest{Manifest: &nodepb.Manifest{
				Name: []byte("file"), Size: uint64(m.Size), Mode: 0o777, Sums: [][]byte{sum[:]}, Continues: i == 0,
			}}})
		}
		if round == 0 {
			if missing := c.hear().GetMissing(); len(missing.GetSums()) != 2 {
				t.Fatalf("missing is %v", missing)
			}
			c.chunk(m.Chunks[1][:], []byte("b"))
			c.chunk(m.Chunks[0][:], content[:stage.ChunkSize])
		}
		if m := c.hear(); string(m.GetStored().GetName()) != "file" {
			t.Fatalf("round %d: the node says %v", round, m)
		}
		c.runs("wc -c <file; stat -c %a file", nil)
		if got := c.listen(); strings.TrimSpace(got.out) != fmt.Sprintf("%d\n700", len(content)) {
			t.Errorf("%+v", got)
		}
	}
}

// Too much input ends the reservation.
func TestTooMuchInput(t *testing.T) {
	h := newHost(t, nil)
	c := h.talk().booked()
	c.runs("sleep 1000", func(s *nodepb.Start) { s.Input = true })
	go func() { // ends with the stream
		for i := range 8 {
			c.say(&nodepb.ToNode{Say: &nodepb.ToNode_Input{Input: &nodepb.Input{Offset: uint64(i) * jobagent.MaxInput, Data: make([]byte, jobagent.MaxInput)}}})
		}
	}()
	for m := c.hear(); m.GetFault() == nil; m = c.hear() {
		if m == nil {
			t.Fatal("no fault came")
		}
	}
	c.hang()
	h.empty()
}

// A second node service does not take the folder of one that is running, but takes over that of one
// that was killed.
func TestStores(t *testing.T) {
	h := newHost(t, nil)
	c := h.talk().booked()
	c.brings("file", "content")
	second := newHost(t, func(o *Options) { o.Store = h.opts.Store })
	c2 := second.talk().booked()
	c2.manifest("file", []byte("content"))
	if m := c2.hear(); m.GetFault().GetCode() != nodepb.Fault_DISK || !strings.Contains(string(m.GetFault().GetText()), "another helper") {
		t.Errorf("a store in use: the node says %v", m)
	}
	c2.hang()
	if len(h.left()) != 1 {
		t.Error("the second node service removed the folder of a job of the first")
	}
	h.stop()
	rest := filepath.Join(h.jobs(), "rest")
	if err := os.MkdirAll(filepath.Join(rest, "locked"), 0o700); err != nil {
		t.Fatal(err)
	}
	newHost(t, func(o *Options) { o.Store = h.opts.Store })
	testkit.Until(t, "the rest to go", func() bool {
		_, err := os.Stat(rest)
		return os.IsNotExist(err)
	})
}

// Only ask, attach or cancel can begin a conversation.
func TestFirstMessage(t *testing.T) {
	h := newHost(t, nil)
	c := h.talk()
	c.commit()
	if err := testkit.Receive(t, "the conversation's end", c.ended); err == nil || !strings.Contains(err.Error(), "begins with") {
		t.Errorf("it ended with %v", err)
	}
	c = h.talk()
	c.id = c.id[:15]
	if m := c.ask(1); m.GetNok().GetReason() != string(reserve.Invalid) {
		t.Errorf("a short key: %v", m)
	}
	c = h.talk()
	c.say(&nodepb.ToNode{Say: &nodepb.ToNode_Ask{Ask: &nodepb.Ask{Key: c.id, Job: "no job", Processes: 1}}})
	if m := c.hear(); m.GetNok().GetReason() != string(reserve.Invalid) {
		t.Errorf("no job: %v", m)
	}
}

func TestOwnersRules(t *testing.T) {
	h := newHost(t, func(o *Options) { o.Policy.Deny = []reserve.Rule{{Site: "there"}} })
	if m := h.talk().ask(1); m.GetNok().GetReason() != string(reserve.Denied) {
		t.Errorf("the node says %v", m)
	}
	c := h.talk()
	c.who.Node = overlay.NodeID{Site: "elsewhere", Name: "n1"}
	if m := c.ask(1); m.GetOk() == nil {
		t.Errorf("the node says %v", m)
	}
}

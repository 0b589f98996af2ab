package submit

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/isthmus-grid/isthmus/internal/job/ranks"
	"github.com/isthmus-grid/isthmus/launch/allocate"
	"github.com/isthmus-grid/isthmus/launch/nodeservice/nodepb"
	"github.com/isthmus-grid/isthmus/overlay"
)

// replicated is a job of n ranks with 2 replicas. reports returns the steps of these names.
func replicated(t *testing.T, n int, out io.Writer) (j *Job, reports func(step string) []string) {
	j = jobOf(t, n, out)
	j.Place.Copies = 2
	var mu sync.Mutex
	var all []Progress
	j.Progress = func(p Progress) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, p)
	}
	return j, func(step string) (texts []string) {
		mu.Lock()
		defer mu.Unlock()
		for _, p := range all {
			if p.Step == step {
				texts = append(texts, p.String())
			}
		}
		return texts
	}
}

// The death of a replica is reported, and nothing else of it is seen: the other prints the rest, and
// has had all of the input.
func TestAReplicaDies(t *testing.T) {
	w := newWorld(t, "a/n1:2", "b/n1:2")
	died := make(chan struct{})
	write := func(p *process, first, last int) {
		for i := first; i < last; i++ {
			p.say("line %d\n", i)
		}
	}
	w.nodes["a/n1"].life = func(p *process) {
		write(p, 0, 3)
		if p.Rank == 0 {
			<-p.inputEnd
			p.exit(137, "KILL")
			return
		}
		<-died
		write(p, 3, 6)
		p.exit(0, "")
	}
	heard := make(chan struct{}) // of the death; the job could end before that otherwise
	w.nodes["b/n1"].breaks = func(_ *talk, m *nodepb.ToNode) bool {
		if m.GetDead() != nil {
			close(heard)
		}
		return false
	}
	w.nodes["b/n1"].life = func(p *process) {
		<-heard
		write(p, 0, 6)
		if p.Rank == 0 {
			<-p.inputEnd
			p.say("%s\n", p.input.String())
		}
		p.exit(0, "")
	}
	var out buffer
	j, reports := replicated(t, 2, &out)
	j.Stdin = strings.NewReader("input")
	note := j.Progress
	j.Progress = func(p Progress) {
		if note(p); p.Step == "died" {
			close(died)
		}
	}
	if _, err := w.run(j); err != nil {
		t.Fatal(err)
	}
	var want []string
	for rank := range 2 {
		for i := range 6 {
			want = append(want, fmt.Sprintf("[%d] line %d\n", rank, i))
		}
	}
	want = append(want, "[0] input\n")
	slices.Sort(want)
	if out.sorted() != strings.Join(want, "") {
		t.Errorf("got\n%s", out.sorted())
	}
	if got := reports("died"); len(got) != 1 || got[0] != "rank 0: replica 0 has died: signal: killed (a/n1); 1 of its 2 replicas live" {
		t.Errorf("reported: %q", got)
	}
	if got := reports("diverged"); got != nil {
		t.Errorf("reported: %q", got)
	}
	n := w.nodes["b/n1"]
	n.mu.Lock()
	if !slices.Equal(n.deaths, []uint32{0}) {
		t.Errorf("the node of the other replicas was told of the deaths of %v, want [0]", n.deaths)
	}
	n.mu.Unlock()
	w.idle()
}

// Unless the user names another strategy, each set of replicas is at one site, and no other set there.
func TestSetsOfReplicas(t *testing.T) {
	w := newWorld(t, "a/n1:1", "b/n1:1", "b/n2:1", "c/n1:1", "c/n2:1")
	for strategy, want := range map[string]string{"": "b/n1:0.0 b/n2:1.0 c/n1:0.1 c/n2:1.1", "spread": "a/n1:0.0 b/n1:1.0 b/n2:0.1 c/n1:1.1"} {
		j, _ := replicated(t, 2, nil)
		j.Strategy = strategy
		plan, err := Plan(t.Context(), w.grid, j)
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, h := range plan.Used() {
			for _, p := range h.Processes {
				all = append(all, fmt.Sprintf("%s:%d.%d", h.Node.Key(), p.Rank, p.Copy))
			}
		}
		slices.Sort(all)
		if got := strings.Join(all, " "); got != want {
			t.Errorf("strategy %q: %s, want %s", strategy, got, want)
		}
	}
}

// A host whose helper knows no replicas gets none: without it the job does not start, and the error says why. Independent ones need
// nothing of it.
func TestAnOldHelper(t *testing.T) {
	for _, independent := range []bool{false, true} {
		w := newWorld(t, "a/n1:2", "b/n1:2")
		w.nodes["b/n1"].outdated = true
		j, _ := replicated(t, 2, io.Discard)
		j.Independent = independent
		_, err := w.run(j)
		refused := err != nil && strings.Contains(err.Error(), "1 with a helper that is too old for what the job needs: upgrade it, or omit --replicas or --replace")
		if refused == independent || independent && err != nil {
			t.Errorf("independent %t: %v", independent, err)
		}
		w.idle()
	}
}

// A rank is lost with its last replica, whether they are killed or lost with their hosts.
func TestARankIsLost(t *testing.T) {
	w := newWorld(t, "a/n1:2", "b/n1:2")
	died := make(chan struct{})
	w.nodes["a/n1"].life = func(p *process) {
		if p.Rank == 1 {
			p.exit(137, "KILL")
			close(died)
			return
		}
		<-p.Signals
		p.exit(143, "TERM")
	}
	w.nodes["b/n1"].life = func(p *process) {
		<-died
		if p.Rank == 1 {
			p.exit(139, "SEGV")
			return
		}
		<-p.Signals
		p.exit(143, "TERM")
	}
	j, reports := replicated(t, 2, io.Discard)
	_, err := w.run(j)
	var exit *ranks.ExitError
	if !errors.As(err, &exit) || exit.Rank != 1 || len(reports("died")) != 1 {
		t.Errorf("%v, after %q", err, reports("died"))
	}
	w.idle()
}

// A status of its own ends the job, whichever replica exits with it, also one as shells have for signals.
func TestAReplicaFails(t *testing.T) {
	for _, status := range []uint32{9, 137} {
		w := newWorld(t, "a/n1:2", "b/n1:2")
		for name, n := range w.nodes {
			n.life = func(p *process) {
				if name == "b/n1" && p.Rank == 1 {
					p.exit(status, "")
					return
				}
				<-p.Signals
				p.exit(143, "TERM")
			}
		}
		j, reports := replicated(t, 2, io.Discard)
		_, err := w.run(j)
		if want := fmt.Sprintf("rank 1: replica 1: exit status %d (b/n1)", status); err == nil || err.Error() != want || reports("died") != nil {
			t.Errorf("%v, after %q, want %s", err, reports("died"), want)
		}
		w.idle()
	}
}

// Replicas that write different bytes, although none of them has died, fail the job: the lowest one is printed. The first such rank is the reason,
// the others are reported.
func TestReplicasDiffer(t *testing.T) {
	w := newWorld(t, "a/n1:2", "b/n1:2")
	for name, n := range w.nodes {
		n.life = func(p *process) {
			p.say("I am at %s\n", name)
			p.exit(0, "")
		}
	}
	var out buffer
	j, reports := replicated(t, 2, &out)
	_, err := w.run(j)
	const what = "standard output: replicas 0 and 1 have written different bytes, from byte 8 on; what replica 0 wrote is printed; likely causes: "
	var exit *ranks.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.HasPrefix(err.Error(), "rank 0: "+what) {
		t.Error(err)
	}
	if got := out.sorted(); got != "[0] I am at a/n1\n[1] I am at a/n1\n" {
		t.Errorf("printed %q", got)
	}
	if got := reports("diverged"); len(got) != 1 || !strings.HasPrefix(got[0], "rank 1: "+what) {
		t.Errorf("reported: %q", got)
	}
	w.idle()
}

// While replicas differ and live, nothing more is printed, and after a time that is reported. It is no fault if one of them then dies.
func TestReplicasDifferForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a/n1:1", "b/n1:1")
		goesOn := make(chan struct{})
		w.nodes["a/n1"].life = func(p *process) {
			p.say("one\ntwo\n")
			<-goesOn
			p.exit(137, "KILL")
		}
		w.nodes["b/n1"].life = func(p *process) {
			p.say("one\nTWO\n")
			<-goesOn
			p.exit(0, "")
		}
		var out buffer
		j, reports := replicated(t, 1, &out)
		note := j.Progress
		j.Progress = func(p Progress) {
			if note(p); p.Step == "diverged" {
				if got := out.sorted(); got != "[0] one\n" {
					t.Errorf("printed %q", got)
				}
				close(goesOn)
			}
		}
		if _, err := w.run(j); err != nil || out.sorted() != "[0] TWO\n[0] one\n" {
			t.Errorf("%v, printed %q", err, out.sorted())
		}
		if got := reports("diverged"); len(got) != 1 || !strings.Contains(got[0], "rank 0: standard output: replicas 0 and 1 have written different bytes, from byte 4 on; nothing more of the rank is printed until") {
			t.Errorf("reported: %q", got)
		}
	})
}

// What a replica writes before the others waits for them, and is lost with it: the other one prints what follows from its own
// decisions. On standard error each prints its own lines.
func TestOutputIsCommitted(t *testing.T) {
	w := newWorld(t, "a/n1:1", "b/n1:1")
	died := make(chan struct{})
	w.nodes["a/n1"].life = func(p *process) {
		p.say("drawn 17\n")
		p.complain("drawn")
		p.complain(" 17\n")
		p.exit(137, "KILL")
	}
	w.nodes["b/n1"].life = func(p *process) {
		<-died
		p.complain("drawn 4\n")
		p.say("drawn 4\n")
		p.exit(0, "")
	}
	var out, errs buffer
	j, reports := replicated(t, 1, nil)
	j.Output = ranks.Lines(&out, &errs)
	note := j.Progress
	j.Progress = func(p Progress) {
		if note(p); p.Step == "died" {
			if got := out.sorted(); got != "" {
				t.Errorf("printed %q while only one had written it", got)
			}
			close(died)
		}
	}
	if _, err := w.run(j); err != nil || out.sorted() != "[0] drawn 4\n" || errs.sorted() != "[0.0] drawn 17\n[0.1] drawn 4\n" {
		t.Errorf("%v, printed %q, and %q", err, out.sorted(), errs.sorted())
	}
	if got := reports("diverged"); got != nil {
		t.Errorf("reported: %q", got)
	}
	w.idle()
}

// A replica that ends with a status of its own has not died: what it wrote is printed although the others are ended for it.
func TestOutputOfAReplicaThatFails(t *testing.T) {
	for _, status := range []uint32{3, 137} {
		w := newWorld(t, "a/n1:1", "b/n1:1")
		w.nodes["a/n1"].life = func(p *process) {
			p.say("singular\n")
			p.exits(&nodepb.Exited{Status: status, Text: fmt.Appendf(nil, "exit status %d", status)})
		}
		w.nodes["b/n1"].life = ends
		var out buffer
		j, _ := replicated(t, 1, &out)
		if _, err := w.run(j); err == nil || out.sorted() != "[0] singular\n" {
			t.Errorf("%v, printed %q", err, out.sorted())
		}
		w.idle()
	}
}

// Nodes watch each other's processes by number, and processes know how replicas work together and where the first ones of all
// ranks are; of independent replicas neither is so, and each is printed.
func TestWhatReplicasAreTold(t *testing.T) {
	for _, independent := range []bool{false, true} {
		w := newWorld(t, "a/n1:3", "b/n1:3")
		var out buffer
		j, _ := replicated(t, 3, &out)
		j.Independent, j.ReplicaTable, j.SendDeterministic = independent, "primary", true
		j.Stdin = strings.NewReader("")
		if _, err := w.run(j); err != nil {
			t.Fatal(err)
		}
		for _, talk := range w.nodes["b/n1"].talks {
			s := talk.start
			replicas := uint32(2)
			want, watched, lines := "[ISTHMUS_REPLICA_TABLE=primary ISTHMUS_SEND_DETERMINISTIC=1 ISTHMUS_PLACES=a/n1:3]", "[a/n1 [0 1 2] b/n1 [3 4 5]]", 3
			if independent {
				want, watched, lines, replicas = "[]", "[]", 6, 1
			}
			var nodes []any
			for _, n := range s.Nodes {
				nodes = append(nodes, n.Node, n.Ranks)
			}
			if fmt.Sprint(nodepb.Words(s.Environment)) != want || fmt.Sprint(nodes) != watched || s.Replicas != replicas || s.Input == independent {
				t.Errorf("independent %t: started with %v", independent, s)
			}
			if got := strings.Count(out.sorted(), "\n"); got != lines {
				t.Errorf("independent %t: printed\n%s", independent, out.sorted())
			}
		}
		w.idle()
	}
}

// A pinned rank 0 runs once, on the nearest host, under its host's name; its end is the job's.
func TestRank0IsPinned(t *testing.T) {
	w := newWorld(t, "a/n1:3", "b/n1:2", "c/n1:2")
	var out buffer
	j, _ := replicated(t, 3, &out)
	j.PinRank0 = true
	r, err := w.run(j)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(r.Places); got != "[{a/n1 [{0 0} {1 0} {2 0}]} {b/n1 [{1 1} {2 1}]}]" {
		t.Errorf("placed at %s", got)
	}
	if got := out.sorted(); got != "[1] rank 1\n[2] rank 2\n[a/n1:0] rank 0\n" {
		t.Errorf("printed\n%s", got)
	}
	w.nodes["a/n1"].life = func(p *process) {
		if p.Rank == 0 {
			p.exit(137, "KILL")
			return
		}
		<-p.Signals
		p.exit(143, "TERM")
	}
	w.nodes["b/n1"].life = func(p *process) {
		<-p.Signals
		p.exit(143, "TERM")
	}
	j, reports := replicated(t, 3, io.Discard)
	j.PinRank0 = true
	if _, err := w.run(j); err == nil || err.Error() != "rank 0: signal: killed (a/n1)" || reports("died") != nil {
		t.Errorf("%v, after %q", err, reports("died"))
	}
	j.Hosts = []HostShare{{Ranks: 6}}
	if _, err := w.run(j); err == nil || !strings.Contains(err.Error(), "rank 0 is to be pinned") {
		t.Error(err)
	}
}

// Files come from the lowest replica that ended well; what the other hosts sent is dropped, with what
// failed there.
func TestFilesOfReplicas(t *testing.T) {
	for _, c := range []struct{ killed, want string }{{"", "a"}, {"a/n1", "b"}, {"b/n1", "a"}} {
		w := newWorld(t, "a/n1:1", "b/n1:1")
		for name, n := range w.nodes {
			n.life = func(p *process) {
				for _, m := range []*nodepb.FileChunk{
					{Name: []byte("sub/out"), Mode: 0o600, Data: []byte(name), End: name != c.killed}, // unless it dies, whole
					{Name: []byte("none"), Fault: []byte("no such file on " + name), End: true},
				} {
					p.event(&nodepb.ToSubmitter{Say: &nodepb.ToSubmitter_File{File: m}})
				}
				if name == c.killed {
					p.exit(137, "KILL")
				} else {
					p.exit(0, "")
				}
			}
		}
		to := &Folder{Dir: t.TempDir()}
		j, _ := replicated(t, 1, io.Discard)
		j.Fetch, j.FetchTo = []string{"sub/*"}, to
		r, err := w.run(j)
		if err != nil {
			t.Fatal(err)
		}
		got, err := to.Close()
		host := c.want + "/n1"
		if r.Sources[0].String() != host || len(got) != 1 || got[0] != filepath.Join(to.Dir, host, "sub/out") {
			t.Errorf("%q was killed: got %q, and %v", c.killed, got, r.Sources)
		}
		if err == nil || err.Error() != "none of "+host+": no such file on "+host {
			t.Errorf("%q was killed: the errors are %v", c.killed, err)
		}
		if all, err := os.ReadDir(to.Dir); err != nil || len(all) != 1 {
			t.Errorf("%q was killed: there is %v, %v", c.killed, all, err)
		}
		w.idle()
	}
}

// Which replicas live is known from all hosts together.
func TestLiveReplicas(t *testing.T) {
	j := RunningJob{}
	for _, there := range []*nodepb.JobHere{
		{Ranks: 3, Replicas: 2, Places: []*nodepb.Process{{Rank: 1, Copy: 1}, {Rank: 7}}},
		{State: "held"}, // by a host that is not used
		{Ranks: 3, Replicas: 2, Places: []*nodepb.Process{{Rank: 0}, {Rank: 1}}},
		{Ranks: 9, Replicas: 2, Places: []*nodepb.Process{{Rank: 2}}},
	} {
		j.addLive(there)
	}
	if got := fmt.Sprint(j.Ranks, j.Replicas, j.Live); got != "3 2 [[0] [0 1] []]" {
		t.Error(got)
	}
	alone := RunningJob{}
	alone.addLive(&nodepb.JobHere{Ranks: 3, Places: []*nodepb.Process{{}}})
	if alone.Ranks != 3 || alone.Replicas != 1 || alone.Live != nil {
		t.Errorf("%+v", alone)
	}
}

// A host that cannot be reached any more is not waited for once its ranks have ended well elsewhere.
func TestASilentHostIsNotAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a/n1:1", "b/n1:1")
		silent := make(chan struct{})
		w.nodes["a/n1"].life = func(p *process) {
			<-p.committed
			p.n.mu.Lock()
			defer p.n.mu.Unlock()
			p.n.breaks = func(*talk, *nodepb.ToNode) bool { return true }
			p.stop()
		}
		w.nodes["b/n1"].life = func(p *process) {
			<-silent
			p.say("done\n")
			p.exit(0, "")
		}
		var out buffer
		j, reports := replicated(t, 1, &out)
		note := j.Progress
		j.Progress = func(p Progress) {
			if note(p); p.Step == "broken" {
				close(silent)
			}
		}
		_, err := w.run(j)
		if err != nil || out.sorted() != "[0] done\n" || reports("died") != nil { // it would be given up
			t.Errorf("%v, printed %q, after %q", err, out.sorted(), reports("died"))
		}
	})
}

// A host cannot write for a replica that the job has not.
func TestOutputOfNoReplica(t *testing.T) {
	s := newSink(ranks.Lines(io.Discard, io.Discard), nil, func(int) int { return 2 })
	from := overlay.NodeID{Site: "a", Name: "n1"}
	out := &nodepb.Output{Process: &nodepb.Process{Rank: 1, Copy: 2}, Data: []byte("x")}
	if err := s.output(from, out); err == nil || err.Error() != "a/n1 has output of replica 2 of a job with 2" {
		t.Error(err)
	}
	s.ended(out.Process.Value(), &nodepb.Exited{})
}

// Files come from a host that was heard to its end.
func TestSources(t *testing.T) {
	node := func(name string) overlay.NodeID { return overlay.NodeID{Site: "a", Name: name} }
	one := allocate.Process{Rank: 0, Copy: 1}
	places := []Placed{{node("n1"), []allocate.Process{one}}, {node("n2"), []allocate.Process{{}}}}
	for _, c := range []struct {
		well []allocate.Process
		lost string
		want string
	}{
		{nil, "", "n2"},
		{[]allocate.Process{one}, "", "n1"},
		{[]allocate.Process{one, {}}, "", "n2"},
		{[]allocate.Process{one, {}}, "n2", "n1"},
		{[]allocate.Process{{}}, "n2", "n2"},
	} {
		o := newOutcome(2, func(int) int { return 2 }, false)
		for _, p := range c.well {
			o.well[p] = true
		}
		if got := o.sources(places, map[overlay.NodeID]bool{node(c.lost): true}); got[0] != node(c.want) {
			t.Errorf("%+v: from %v", c, got[0])
		}
	}
}

package submit

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-grid/isthmus/launch/allocate"
	"github.com/isthmus-grid/isthmus/launch/nodeservice/nodepb"
	"github.com/isthmus-grid/isthmus/overlay"
)

// replacing returns a job of three ranks of which so many processes are replaced, and what it reports of that.
func replacing(t *testing.T, out io.Writer, most int) (*Job, *[]string) {
	j := jobOf(t, 3, out)
	j.Replace, j.Hang = most, time.Millisecond
	var told []string
	j.Progress = func(p Progress) {
		if p.Step == "died" || p.Step == "joined" {
			told = append(told, p.String())
		}
	}
	return j, &told
}

// waits is the life of a process that ends when it is ended, or once its node has been told of hosts that joined.
func waits(joined int) func(*process) {
	return func(p *process) {
		for {
			select {
			case s := <-p.Signals:
				p.exit(143, s)
				return
			case <-time.After(time.Millisecond):
			}
			p.n.mu.Lock()
			told := len(p.n.joined)
			p.n.mu.Unlock()
			if told >= joined {
				p.say("rank %d\n", p.Rank)
				p.exit(0, "")
				return
			}
		}
	}
}

// A killed process is replaced at another host, which learns all about it, and the others learn of the host. So is the process
// that replaces it.
func TestReplace(t *testing.T) {
	w := newWorld(t, "a/n1:1", "b/n1:1", "c/n1:1", "d/n1:1", "e/n1:1")
	for _, name := range []string{"a/n1", "c/n1"} {
		w.nodes[name].life = waits(2)
	}
	killed := func(p *process) {
		<-p.committed
		p.exit(137, "KILL")
	}
	w.nodes["b/n1"].life, w.nodes["d/n1"].life = killed, killed
	starts := make(chan *nodepb.Start, 1)
	w.nodes["e/n1"].life = func(p *process) {
		starts <- p.start
		p.say("number %d\n", p.Rank)
		<-p.committed
		p.exit(0, "")
	}
	var out buffer
	j, told := replacing(t, &out, 3)
	r, err := w.run(j)
	if err != nil {
		t.Fatal(err)
	}
	if want := "[a/n1:0] rank 0\n[c/n1:2] rank 2\n[e/n1:4] number 4\n"; out.sorted() != want {
		t.Errorf("got\n%s\nwant\n%s", out.sorted(), want)
	}
	if want := (overlay.NodeID{Site: "e", Name: "n1"}); r.Sources[1] != want {
		t.Errorf("the files of rank 1 are those of %v", r.Sources[1])
	}
	want := []string{
		"process 1 was lost: signal: killed (b/n1); process 3 replaces it", "process 3 goes on with rank 1 at d/n1",
		"process 3 was lost: signal: killed (d/n1); process 4 replaces it", "process 4 goes on with rank 1 at e/n1",
	}
	if !slices.Equal(*told, want) {
		t.Errorf("reported: %q", *told)
	}
	s := <-starts
	var nodes []string
	for _, n := range s.Nodes {
		nodes = append(nodes, fmt.Sprint(n.Node, n.Ranks))
	}
	if s.Size != 3 || s.Spares != 3 || !slices.Equal(s.Replacements, []uint32{1, 1}) || !slices.Equal(nodes, []string{"a/n1[0]", "c/n1[2]", "e/n1[4]"}) {
		t.Errorf("process 4 of %d and %d replaces %v, beside %v", s.Size, s.Spares, s.Replacements, nodes)
	}
	n := w.nodes["a/n1"]
	n.mu.Lock()
	defer n.mu.Unlock()
	if !slices.Equal(n.deaths, []uint32{1, 1, 3}) || !slices.Contains(n.joined, "d/n1[3]") || !slices.Contains(n.joined, "e/n1[4]") {
		t.Errorf("a/n1 was told of the deaths of %v, and that %v joined", n.deaths, n.joined)
	}
}

// Processes that cannot be replaced end the job, which says why.
func TestNotReplaced(t *testing.T) {
	for _, tc := range []struct {
		nodes []string
		most  int
		life  func(*process) // of the process that replaces the killed one
		what  string
	}{
		{[]string{"d/n1:1", "e/n1:1"}, 1, func(p *process) { <-p.committed; p.exit(137, "KILL") },
			"rank 1: process 3, which replaced a lost one: signal: killed (d/n1); no spare process number is left to replace it: raise --replace"},
		{[]string{"d/n1:1"}, 3, func(p *process) { <-p.committed; p.exit(7, "") }, "rank 1: process 3, which replaced a lost one: exit status 7 (d/n1)"},
		{[]string{"d/n1:1"}, 3, func(p *process) { <-p.committed; p.exit(137, "") }, "rank 1: process 3, which replaced a lost one: exit status 137 (d/n1)"},
		{nil, 3, nil, "no other host for process 3, which is to replace a lost one of rank 1: "},
	} {
		w := newWorld(t, append([]string{"a/n1:1", "b/n1:1", "c/n1:1"}, tc.nodes...)...)
		for _, name := range []string{"a/n1", "c/n1"} {
			w.nodes[name].life = waits(99)
		}
		w.nodes["b/n1"].life = func(p *process) {
			<-p.committed
			p.exit(137, "KILL")
		}
		for _, name := range tc.nodes {
			w.nodes[name[:4]].life = tc.life
		}
		j, _ := replacing(t, io.Discard, tc.most)
		_, err := w.run(j)
		if err == nil || !strings.Contains(err.Error(), tc.what) {
			t.Errorf("%v, want %q", err, tc.what)
		}
		w.idle()
	}
}

// A host that is silent is given up as soon as the others do, and its process is replaced.
func TestReplaceWithASilentHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a/n1:1", "b/n1:1", "c/n1:1", "d/n1:1")
		for _, name := range []string{"a/n1", "c/n1"} {
			w.nodes[name].life = waits(1)
		}
		b := w.nodes["b/n1"]
		b.life = func(p *process) {
			<-p.committed
			b.mu.Lock()
			defer b.mu.Unlock()
			b.breaks = func(*talk, *nodepb.ToNode) bool { return true }
			p.stop()
		}
		j, told := replacing(t, io.Discard, 1)
		if _, err := w.run(j); err != nil {
			t.Fatal(err)
		}
		if len(*told) != 2 || !strings.Contains((*told)[0], "process 1 was lost: lost with b/n1: no answer for") {
			t.Errorf("reported: %q", *told)
		}
	})
}

// A host that falls silent before a replacement runs there holds that up no longer than one that does not answer at first. It
// costs a number if the process may run.
func TestReplaceWithAHostLostBeforeTheLaunch(t *testing.T) {
	const lost, replaced = "process 1 was lost: signal: killed (b/n1); process 3 replaces it", "process 3 goes on with rank 1 at e/n1"
	again := []string{lost, "process 3 was lost: job <job> does not start: d/n1 refuses: unknown (no answer for 5s); process 4 replaces it", "process 4 goes on with rank 1 at e/n1"}
	for _, tc := range []struct {
		name     string
		isSilent func(*nodepb.ToNode) bool // from which message on
		want     []string
	}{
		{"asked", func(m *nodepb.ToNode) bool { return m.GetAsk() != nil }, []string{lost, replaced}},
		{"staging", func(m *nodepb.ToNode) bool { return m.GetManifest() != nil }, []string{lost, replaced}},
		{"starting", func(m *nodepb.ToNode) bool { return m.GetStart() != nil }, again},
		{"committing", func(m *nodepb.ToNode) bool { return m.GetCommit() != nil }, again},
	} {
		t.Run(tc.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "input")
			if err := os.WriteFile(file, []byte("content"), 0o600); err != nil {
				t.Fatal(err)
			}
			files, err := Collect([]string{file})
			if err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "a/n1:1", "b/n1:1", "c/n1:1", "d/n1:1", "e/n1:1")
				for _, name := range []string{"a/n1", "c/n1"} {
					w.nodes[name].life = waits(1)
				}
				w.nodes["b/n1"].life = killed
				isSilent, over := false, make(chan struct{})
				defer close(over)
				w.nodes["d/n1"].life = func(p *process) {
					select {
					case <-p.committed:
						p.exit(0, "")
					case <-over:
					}
				}
				w.nodes["d/n1"].breaks = func(_ *talk, m *nodepb.ToNode) bool {
					isSilent = isSilent || tc.isSilent(m)
					return isSilent
				}
				j, told := replacing(t, io.Discard, 2)
				j.Files, j.Hang = files, 0
				start := time.Now()
				if _, err := w.run(j); err != nil {
					t.Fatal(err)
				}
				for i, line := range *told {
					(*told)[i] = strings.ReplaceAll(line, string(j.Key.ID()), "<job>")
				}
				if took := time.Since(start); !slices.Equal(*told, tc.want) || took > 2*answerTime {
					t.Errorf("after %v: %q", took, *told)
				}
			})
		})
	}
}

// A host that has refused to start a process is not asked again.
func TestReplaceElsewhereThanBefore(t *testing.T) {
	w := newWorld(t, "a/n1:1", "b/n1:1", "c/n1:1", "d/n1:1", "e/n1:1")
	for _, name := range []string{"a/n1", "c/n1"} {
		w.nodes[name].life = waits(1)
	}
	w.nodes["b/n1"].life = killed
	w.nodes["d/n1"].breaks = func(c *talk, m *nodepb.ToNode) bool {
		if m.GetStart() != nil {
			c.answer(&nodepb.ToSubmitter{Say: &nodepb.ToSubmitter_Refused{Refused: &nodepb.Refused{What: nodepb.Refused_START, Reason: "invalid", Text: []byte("no disk")}}})
		}
		return false
	}
	j, told := replacing(t, io.Discard, 2)
	if _, err := w.run(j); err != nil {
		t.Fatal(err)
	}
	if last := (*told)[len(*told)-1]; last != "process 4 goes on with rank 1 at e/n1" {
		t.Errorf("reported: %q", *told)
	}
	w.idle()
}

// Where no host of the job at a site is reached any more, the others of the site are asked last.
func TestReplaceElsewhereThanAtALostSite(t *testing.T) {
	for _, isAlone := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			names, want := []string{"a/n1:1", "b/n1:1", "b/n2:1", "b/n3:1", "b/n4:1", "c/n1:1", "c/n2:1"}, []string{"c/n1", "c/n2"}
			if isAlone {
				names, want = names[:5], []string{"b/n3", "b/n4"}
			}
			w := newWorld(t, names...)
			w.nodes["a/n1"].life = waits(2)
			for _, name := range []string{"b/n1", "b/n2"} {
				n := w.nodes[name]
				n.life = func(p *process) {
					<-p.committed
					n.mu.Lock()
					defer n.mu.Unlock()
					n.breaks = func(*talk, *nodepb.ToNode) bool { return true }
					p.stop()
				}
			}
			j, told := replacing(t, io.Discard, 2)
			r, err := w.run(j)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, p := range r.Places[3:] {
				got = append(got, p.Node.Key())
			}
			if !slices.Equal(got, want) {
				t.Errorf("at %v, want %v: %q", got, want, *told)
			}
		})
	}
}

// Processes that are ended because not all hosts have started are not replaced.
func TestNotReplacedAtAFailedStart(t *testing.T) {
	w := newWorld(t, "a/n1:3")
	j, _ := replacing(t, io.Discard, 1)
	p, err := find(t.Context(), w.grid, j, nil)
	if err != nil {
		t.Fatal(err)
	}
	d, err := newDriver(w.grid, j, p, bookTime)
	if err != nil {
		t.Fatal(err)
	}
	if number, ok := d.replaces(allocate.Process{Rank: 1}); number != 3 || !ok {
		t.Errorf("before: process %d, %v", number, ok)
	}
	d.sub.Cancel(time.Now())
	if number, ok := d.replaces(allocate.Process{Rank: 1}); ok {
		t.Errorf("process %d replaces one that was ended", number)
	}
}

// takesForDead has a process's node say that it takes others for dead.
func (p *process) takesForDead(nodes ...string) {
	p.n.mu.Lock()
	defer p.n.mu.Unlock()
	p.answer(&nodepb.ToSubmitter{Say: &nodepb.ToSubmitter_TakenForDead{TakenForDead: &nodepb.TakenForDead{Nodes: nodes}}})
}

// Hosts that others have taken for dead are given up although they answer: one of the job's first, and one of a
// replacement. What they say of others does not count.
func TestReplaceWithHostsTakenForDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a/n1:1", "b/n1:1", "c/n1:1", "d/n1:1", "e/n1:1")
		for _, name := range []string{"a/n1", "c/n1"} {
			w.nodes[name].life = func(p *process) {
				<-p.committed
				p.takesForDead("b/n1", "d/n1")
				waits(2)(p)
			}
		}
		for _, name := range []string{"b/n1", "d/n1"} {
			w.nodes[name].life = func(p *process) {
				<-p.committed
				p.takesForDead("a/n1", "nowhere")
			}
		}
		j, told := replacing(t, io.Discard, 2)
		if _, err := w.run(j); err != nil {
			t.Fatal(err)
		}
		const why = "other hosts of the job have taken the node for dead"
		want := []string{
			"process 1 was lost: lost with b/n1: " + why + "; process 3 replaces it", "process 3 goes on with rank 1 at d/n1",
			"process 3 was lost: lost with d/n1: " + why + "; process 4 replaces it", "process 4 goes on with rank 1 at e/n1",
		}
		if !slices.Equal(*told, want) {
			t.Errorf("reported: %q", *told)
		}
		w.idle()
	})
}

// Where some hosts take others for dead, the larger part of them stays.
func TestDecide(t *testing.T) {
	for _, tc := range []struct{ reports, want string }{
		{"", ""},
		{"ab", "b"},
		{"ba", "a"},
		{"ab ba", "b"},
		{"ab ac ad ba ca da", "a"},
		{"ac ad ae bc bd be ca cb da db ea eb", "ba"},
		{"ac bc cd", "c"}, // what c says does not count then
		{"xa", ""},        // x has ended
		{"ab bc ca", "cb"},
	} {
		var v detected
		host := func(c byte) overlay.NodeID { return overlay.NodeID{Site: "s", Name: string(c)} }
		for report := range strings.FieldsSeq(tc.reports) {
			for range 2 {
				v.report(host(report[0]), []overlay.NodeID{host(report[1])}, time.Now())
			}
		}
		got := ""
		for _, node := range v.decide([]overlay.NodeID{host('a'), host('b'), host('c'), host('d'), host('e')}) {
			got += node.Name
		}
		if got != tc.want {
			t.Errorf("%q: %q are given up, want %q", tc.reports, got, tc.want)
		}
	}
}

// A host whose helper knows no spare numbers, or does not say whom it takes for dead, gets no process of a job with some.
func TestAnOldHelperReplacesNothing(t *testing.T) {
	for _, isMute := range []bool{false, true} {
		w := newWorld(t, "a/n1:3")
		w.nodes["a/n1"].outdated, w.nodes["a/n1"].mute = !isMute, isMute
		j, _ := replacing(t, io.Discard, 1)
		if _, err := w.run(j); err == nil || !strings.Contains(err.Error(), "1 with a helper that is too old for what the job needs") {
			t.Errorf("mute %v: %v", isMute, err)
		}
	}
	j, _ := replacing(t, io.Discard, 1)
	j.Replace = -1
	if err := j.Check(); err == nil {
		t.Error("-1 replacements are not refused")
	}
}

package submit

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/isthmus-grid/isthmus/internal/job/marks"
	"github.com/isthmus-grid/isthmus/internal/job/ranks"
	"github.com/isthmus-grid/isthmus/launch/allocate"
	"github.com/isthmus-grid/isthmus/launch/nodeservice/nodepb"
	"github.com/isthmus-grid/isthmus/overlay"
)

// mark writes a mark into the process's standard output.
func (p *process) mark(m marks.Mark) {
	for _, v := range nodepb.Words(p.start.Environment) {
		if secret, is := strings.CutPrefix(v, marks.Env+"="); is {
			var text bytes.Buffer
			marks.Write(&text, secret, m)
			p.say("%s", text.String())
		}
	}
}

func killed(p *process) {
	<-p.committed
	p.exit(137, "KILL")
}

func ends(p *process) {
	<-p.Signals
	p.exit(143, "TERM")
}

// A lost replica comes back at another site than the other one of its rank; when that one is lost as well, the output goes on
// where it was, once.
func TestAReplicaComesBack(t *testing.T) {
	w := newWorld(t, "a/n1:1", "b/n1:1", "b/n2:1", "c/n1:1")
	j, reports := replicated(t, 1, nil)
	var out buffer
	j.Output, j.Replace = ranks.Lines(&out, &out), 2
	state := marks.NewID()
	loaded, runs, printed := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var joined sync.Once
	starts := make(chan *nodepb.Start, 1)
	w.nodes["a/n1"].life = killed
	w.nodes["b/n1"].life = func(p *process) {
		p.say("begin\none\n")
		<-loaded
		p.mark(marks.Mark{Kind: marks.Saved, ID: state})
		p.mark(marks.Mark{Kind: marks.Joined, ID: marks.ProcessID(2)})
		p.say("two\n")
		<-runs
		killed(p)
	}
	w.nodes["c/n1"].life = func(p *process) {
		starts <- p.start
		p.say("begin\n")
		p.mark(marks.Mark{Kind: marks.Loaded, ID: state})
		p.say("two\nthree\n")
		close(loaded)
		<-printed
		p.say("four\n")
		p.exit(0, "")
	}
	w.nodes["b/n2"].life = ends // the next one, which is not needed in the end
	note, deaths := j.Progress, 0
	j.Progress = func(p Progress) {
		switch note(p); p.Step {
		case "joined":
			joined.Do(func() { close(runs) })
		case "died":
			if deaths++; deaths == 2 {
				close(printed)
			}
		}
	}
	r, err := w.run(j)
	if err != nil {
		t.Fatal(err)
	}
	if want := "[0] begin\n[0] four\n[0] one\n[0] three\n[0] two\n"; out.sorted() != want {
		t.Errorf("got\n%s\nwant\n%s", out.sorted(), want)
	}
	want := []string{
		"rank 0: replica 0 has died: signal: killed (a/n1); 1 of its 2 replicas live; process 2 comes in its place",
		"rank 0: replica 1 has died: signal: killed (b/n1); 1 of its 2 replicas live; process 3 comes in its place",
	}
	if got := reports("died"); !slices.Equal(got, want) {
		t.Errorf("reported: %q", got)
	}
	if got := reports("joined"); len(got) == 0 || got[0] != "process 2 goes on with rank 0 at c/n1" {
		t.Errorf("reported: %q", got)
	}
	if got := reports("diverged"); got != nil {
		t.Errorf("reported: %q", got)
	}
	s := <-starts
	if s.Size != 1 || s.Replicas != 2 || s.Spares != 2 || !slices.Equal(s.Replacements, []uint32{0}) || s.Processes[0].Rank != 2 || !slices.Contains(nodepb.Words(s.Environment), "ISTHMUS_REPLICA_TABLE=parallel") ||
		!slices.Contains(nodepb.Words(s.Environment), "ISTHMUS_PLACES=a/n1:1") {
		t.Errorf("started with %v", s)
	}
	if r.Sources[0] != (overlay.NodeID{Site: "c", Name: "n1"}) {
		t.Errorf("the files are those of %v", r.Sources[0])
	}
	w.idle()
}

// Whatever becomes of what is to come in the place of a lost replica, the job goes on with the other one, and ends well with it.
func TestNoReplicaComesBack(t *testing.T) {
	const died = "rank 0: replica 0 has died: signal: killed (a/n1); 1 of its 2 replicas live; process 2 comes in its place"
	for name, tc := range map[string]struct {
		nodes   []string
		replace int
		life    func(*process)
		last    string // of what is reported
	}{
		"no host":     {nil, 2, nil, "no other host for process 2, which is to replace a lost one of rank 0: "},
		"a status":    {[]string{"c/n1:1", "d/n1:1"}, 2, func(p *process) { <-p.committed; p.exit(1, "") }, "rank 0: replica 0 (process 2) has died: exit status 1 (c/n1); 1 of its 2 replicas live"},
		"all used up": {[]string{"c/n1:1", "d/n1:1"}, 1, killed, "rank 0: replica 0 (process 2) has died: signal: killed (c/n1); no spare process number is left to replace it: raise --replace; 1 of its 2 replicas live"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, append([]string{"a/n1:1", "b/n1:1"}, tc.nodes...)...)
			over := make(chan struct{})
			w.nodes["a/n1"].life = killed
			w.nodes["b/n1"].life = func(p *process) {
				<-over
				p.say("well\n")
				p.exit(0, "")
			}
			for _, name := range tc.nodes {
				w.nodes[name[:4]].life = tc.life
			}
			var out buffer
			j, reports := replicated(t, 1, &out)
			j.Replace = tc.replace
			note, deaths := j.Progress, 0
			j.Progress = func(p Progress) {
				note(p)
				if p.Step == "died" {
					if deaths++; deaths == 2 {
						close(over)
					}
				}
			}
			if _, err := w.run(j); err != nil || out.sorted() != "[0] well\n" {
				t.Errorf("%v, printed %q", err, out.sorted())
			}
			if got := reports("died"); len(got) != 2 || got[0] != died || !strings.HasPrefix(got[1], tc.last) {
				t.Errorf("reported: %q", got)
			}
			w.idle()
		})
	}
}

// A rank is lost with its last replica if nothing runs that may have come in the place of one.
func TestARankIsLostThatComesBack(t *testing.T) {
	w := newWorld(t, "a/n1:1", "b/n1:1")
	waits := make(chan struct{})
	w.nodes["a/n1"].life = killed
	w.nodes["b/n1"].life = func(p *process) {
		<-waits
		killed(p)
	}
	j, _ := replicated(t, 1, io.Discard)
	j.Replace, j.Wait = 2, patience
	note, once := j.Progress, false
	j.Progress = func(p Progress) {
		if note(p); p.Step == "died" && !once {
			once = true
			close(waits)
		}
	}
	if _, err := w.run(j); err == nil || err.Error() != "rank 0: replica 1: signal: killed (b/n1)" {
		t.Error(err)
	}
	w.idle()
}

// What comes in the place of a replica and is not needed any more is ended with the job, which it does not fail.
func TestUnneededNewcomer(t *testing.T) {
	w := newWorld(t, "a/n1:1", "b/n1:1", "c/n1:1")
	runs := make(chan struct{})
	w.nodes["a/n1"].life = killed
	w.nodes["b/n1"].life = func(p *process) {
		<-runs
		p.exit(0, "")
	}
	w.nodes["c/n1"].life = func(p *process) {
		<-p.committed
		close(runs)
		ends(p)
	}
	j, reports := replicated(t, 1, io.Discard)
	j.Replace = 1
	if _, err := w.run(j); err != nil || len(reports("died")) != 1 {
		t.Errorf("%v, after %q", err, reports("died"))
	}
	w.idle()
}

// The output of a rank is right in whichever order the streams of its processes arrive, and where it cannot be, that is said.
func TestStreamOfNewcomer(t *testing.T) {
	const secret = "s"
	for _, tc := range []struct {
		name, steps, want, fault string
	}{
		{"the giver first", "1:ab 2:ab 2s 2j 1x 2:cd n:a nl n:cdef 2:ef", "abcdef", ""},
		{"the newcomer first", "1:ab 1x n:a nl n:cd 2:ab 2s 2j n:ef 2:c", "abc", ""},
		{"the newcomer has ended", "1:ab 1x nl n:cdef n. 2:ab 2s 2j 2:cdef 2.", "abcdef", ""},
		{"the newcomer dies", "1:ab 1x 2:ab 2s 2j 2:cd nl nx 2:e", "abcde", ""},
		{"the newcomer dies before", "1:ab 1x 2:ab nx 2s 2j 2:cd", "abcd", ""},
		{"the newcomer ends without a word", "1:ab 1x 2:ab 2s 2j 2:c n. 2:d", "abcd", ""},
		{"not admitted", "1:ab 1x n:a 2:ab 2s n:xyz n. 2:cd 2.", "abcd", ""},
		{"the giver is lost", "1:ab 1x nl n:cd 2:ab 2x n:ef n.", "abcdef", "may be missing"},
		{"the giver is lost later", "1:ab 1x 2:ab 2s 2j nl n:c 2x n:def", "abcdef", ""},
		{"the giver is lost with what it decided", "1:ab 1x 2:ab 2s 2j 2:X 2x nl n:cd", "abcd", ""},
		{"the giver says it when it is dead", "1:ab 1x nl n:cd 2:a 2x 2:b 2s", "acd", "may be missing"},
		{"another says where the newcomer was", "1x 2:ab 3:a nl n:cd 2x 3:b 3j 3:c", "abc", ""},
		{"the giver says it when it is dead, and another has to", "1x nl n:cd 2:a 3:ab 2x 2:b 2s 3j 3:c", "abc", ""},
		{"the giver is behind", "1x 2:a 3:ab 2:b 2s 2j 3j nl n:cd 2:cd 3:c", "abc", ""},
		{"what the giver wrote is not printed", "1x 2:ab 2s 2j 3:a 2x 3x nl n:c", "abc", ""},
		{"the newcomer has ended, and the giver is lost", "1:ab 1x nl n:cd n. nx 2:ab 2x", "abcd", "may be missing"},
		{"a newcomer gives before its own giver has said where", "1x 2:a 3:ab 3j nl n:c nS nJ n:d 3x mL m:d 2:b 2s 2j 2:c 2J 2:d", "abcd", ""},
		{"two newcomers, whose giver is lost", "1x 2x 3:ab 4:a nl n:cd ml m:cd 3x 4:b 4j 4J 4:cd", "abcd", ""},
		{"other bytes", "1:ab 1x 2:ab 2s 2j nl 2:cd n:cx 2:e", "abc", ""},
		{"other bytes at the end", "1:ab 1x 2:ab 2s 2j nl 2:cd n:cx 2. n.", "abcx", "replicas 1 and 0 have written different bytes, from byte 3 on; what replica 0 wrote is printed"},
	} {
		var out bytes.Buffer
		n := 2 + min(1, strings.Count(tc.steps, "3:")) + min(1, strings.Count(tc.steps, "4:"))
		processes := map[byte]allocate.Process{'1': {}, '2': {Copy: 1}, '3': {Copy: 2}, '4': {Copy: 3}, 'n': {Rank: 9}, 'm': {Rank: 10}}
		s := newSink(ranks.Lines(io.Discard, io.Discard), nil, func(int) int { return n })
		s.secret = secret
		streams, err := s.of(overlay.NodeID{}, processes['1'], processes['1'])
		if err != nil {
			t.Fatal(err)
		}
		streams[0].to = &out
		s.joins(9, processes['1'])
		s.joins(10, processes["__232"[n]])
		write := func(p allocate.Process, data []byte) {
			if err := s.output(overlay.NodeID{}, &nodepb.Output{Process: &nodepb.Process{Rank: uint32(p.Rank), Copy: uint32(p.Copy)}, Data: data}); err != nil {
				t.Fatal(err)
			}
		}
		for step := range strings.FieldsSeq(tc.steps) {
			p := processes[step[0]]
			var text bytes.Buffer
			switch step[1] {
			case ':':
				write(p, []byte(step[2:]))
			case 's', 'l', 'j', 'S', 'L', 'J': // of the first state and newcomer, or of the second
				m, second := marks.Mark{Kind: marks.Kind(step[1] | 0x20), ID: marks.ID{step[1]&0x20 | 1}}, int(^step[1]&0x20)>>5
				if m.Kind == marks.Joined {
					m.ID = marks.ProcessID(9 + second)
				}
				marks.Write(&text, secret, m)
				write(p, text.Bytes()[:9])
				write(p, text.Bytes()[9:])
			case '.':
				err = s.ended(p, &nodepb.Exited{})
			default:
				err = s.ended(p, nil)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		got := out.String()
		fault := fmt.Sprint(s.close())
		if got != tc.want || !strings.Contains(fault, tc.fault) || (fault == "[]") != (tc.fault == "") {
			t.Errorf("%s: printed %q, and %s, want %q, %q", tc.name, got, fault, tc.want, tc.fault)
		}
	}
}

// A process cannot write without end before it is known where that belongs.
func TestNewcomerWithoutMark(t *testing.T) {
	s := newSink(ranks.Lines(io.Discard, io.Discard), nil, func(int) int { return 2 })
	s.secret = "s"
	s.joins(2, allocate.Process{})
	var text bytes.Buffer
	marks.Write(&text, "s", marks.Mark{Kind: marks.Loaded, ID: marks.NewID()})
	var err error
	for range maxQueued>>20 + 1 {
		text.Write(make([]byte, 1<<20))
		err = s.output(overlay.NodeID{}, &nodepb.Output{Process: &nodepb.Process{Rank: 2}, Data: text.Bytes()})
		text.Reset()
	}
	if err == nil || fmt.Sprint(err) != errMarkMissing.Error() {
		t.Error(err)
	}
}

// Helpers that cannot start a newcomer get no process of a job that may need one.
func TestAnOldHelperHasNoNewcomers(t *testing.T) {
	w := newWorld(t, "a/n1:1", "b/n1:1")
	w.nodes["b/n1"].settled = true
	j, _ := replicated(t, 1, io.Discard)
	j.Replace = 1
	if _, err := w.run(j); err == nil || !strings.Contains(err.Error(), "1 with a helper that is too old for what the job needs") {
		t.Error(err)
	}
	for _, wrong := range []func(j *Job){func(j *Job) { j.Replace = MaxNewcomers + 1 }, func(j *Job) { j.Independent = true }, func(j *Job) { j.Survive = true }} {
		j, _ := replicated(t, 1, io.Discard)
		j.Replace = 1
		wrong(j)
		if err := j.Check(); err == nil {
			t.Errorf("%d newcomers, independent %v, survive %v: no error", j.Replace, j.Independent, j.Survive)
		}
	}
}

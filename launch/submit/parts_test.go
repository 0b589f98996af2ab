package submit

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/launch/allocate"
	"github.com/isthmus-grid/isthmus/launch/profile"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Whatever names a node sends, nothing is written outside of the folder.
func TestFetchedFilesStayInTheirFolder(t *testing.T) {
	dir := t.TempDir()
	f := &Folder{Dir: filepath.Join(dir, "in")}
	node := overlay.NodeID{Site: "a", Name: "n1"}
	for _, name := range []string{"../x", "/x", "a/../../../../x", ""} {
		if err := f.Piece(node, name, 0o600, []byte("evil"), true); err == nil {
			t.Errorf("%q was written", name)
		}
	}
	if err := f.Piece(node, "sub/whole", 0o600, []byte("one "), false); err != nil {
		t.Error(err)
	}
	if err := f.Piece(node, "sub/whole", 0o600, []byte("two"), true); err != nil {
		t.Error(err)
	}
	if err := f.Piece(node, "torn", 0o600, []byte("half"), false); err != nil {
		t.Error(err)
	}
	got, err := f.Close()
	if err == nil || !strings.Contains(err.Error(), "torn did not come to its end") {
		t.Error(err)
	}
	if want := []string{filepath.Join(dir, "in/a/n1/sub/whole")}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	var all []string
	filepath.WalkDir(dir, func(p string, e os.DirEntry, _ error) error {
		if !e.IsDir() {
			all = append(all, p)
		}
		return nil
	})
	if !slices.Equal(all, got) {
		t.Errorf("there is %q, want %q", all, got)
	}
}

// The input is sent in bounded pieces, and again from where it was taken.
func TestFeeder(t *testing.T) {
	input := bytes.Repeat([]byte("0123456789"), 100_000)
	poked := make(chan struct{}, 1)
	f := &feeder{in: newStdin(), poke: func() {
		select {
		case poked <- struct{}{}:
		default:
		}
	}}
	f.join()
	go f.in.read(bytes.NewReader(input)) // ends with the input
	var got []byte
	for breaks, ended := 0, false; !ended; {
		m := f.next().GetInput()
		if m == nil {
			select {
			case <-poked:
			case <-time.After(patience):
				t.Fatalf("%d bytes came, and no word of more", len(got))
			}
			continue
		}
		if len(m.Data) > inputPiece || m.Offset != uint64(len(got)) {
			t.Fatalf("%d bytes at %d, want at most %d at %d", len(m.Data), m.Offset, inputPiece, len(got))
		}
		if len(got)+len(m.Data) > int(f.taken)+inputAhead {
			t.Fatalf("%d bytes are under way", len(got)+len(m.Data)-int(f.taken))
		}
		if breaks++; breaks%3 == 0 { // this piece is lost
			f.restart(uint64(len(got)))
			continue
		}
		got = append(got, m.Data...)
		f.acknowledged(uint64(len(got)))
		ended = m.End
	}
	if !bytes.Equal(got, input) {
		t.Errorf("%d bytes came, want %d", len(got), len(input))
	}
}

// A closed feeder releases its reader.
func TestFeederThatIsClosed(t *testing.T) {
	for name, end := range map[string]func(*feeder){"close": func(f *feeder) { f.in.close() }, "leave": (*feeder).leave} {
		f := &feeder{in: newStdin(), poke: func() {}}
		f.join()
		ended := make(chan struct{})
		go func() { // ends by end
			f.in.read(zeros{})
			close(ended)
		}()
		end(f)
		select {
		case <-ended:
		case <-time.After(patience):
			t.Fatalf("%s: the reader still reads", name)
		}
	}
}

// unread is an input that must not be read.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) {
	u.t.Error("the input was read, though no process waits for it")
	return 0, io.EOF
}

// An input is not read before a process waits for it. A terminal is read again only when one waits for more.
func TestInputIsReadWhenItIsWanted(t *testing.T) {
	f := &feeder{in: newStdin(), poke: func() {}, onDemand: true}
	f.join()
	f.demanded(4, true) // it has not taken as many
	f.in.close()
	f.in.read(unread{t})

	for _, byLine := range []bool{false, true} {
		f := &feeder{in: newStdin(), poke: func() {}, onDemand: true}
		f.in.byLine = byLine
		f.join()
		wanted := func() bool {
			f.in.mu.Lock()
			defer f.in.mu.Unlock()
			return f.in.isWanted()
		}
		if wanted() {
			t.Error("wanted at once")
		}
		f.demanded(0, true)
		if !wanted() {
			t.Error("not wanted though a process waits")
		}
		f.in.held = []byte("line\n") // as read adds it
		if wanted() == byLine {
			t.Errorf("by line %t: wanted %t, with a line that was not taken", byLine, !byLine)
		}
		f.next()
		f.acknowledged(5)
		f.demanded(5, false)
		if wanted() == byLine {
			t.Errorf("by line %t: wanted %t, though the process computes", byLine, !byLine)
		}
		f.demanded(5, true)
		if !wanted() {
			t.Errorf("by line %t: not wanted though the process waits", byLine)
		}
		f.restart(5)
		if wanted() == byLine {
			t.Errorf("by line %t: wanted %t on the next stream, which has not said so", byLine, !byLine)
		}
		f.in.held = []byte("more\n")
		f.next()
		f.restart(5) // the process took it, and the node says so on the next stream only
		f.acknowledged(10)
		f.demanded(10, true)
		f.demanded(5, false) // of before
		if !wanted() || f.next() != nil {
			t.Errorf("by line %t: what was taken is sent again, or no more is read", byLine)
		}
	}
}

// writerFunc is called at each Write.
type writerFunc func()

// Write implements io.Writer.
func (f writerFunc) Write(b []byte) (int, error) {
	f()
	return len(b), nil
}

// A job whose processes read no input leaves it to whoever reads it next, such as the loop of a shell.
func TestInputOfAJobThatReadsNone(t *testing.T) {
	w := newWorld(t, "a/n1:1")
	w.nodes["a/n1"].demands = true
	heard := make(chan struct{})
	w.nodes["a/n1"].life = func(p *process) { // ends when the submitter has long had the occasion
		for range 20 {
			p.say("line\n")
			<-heard
		}
		p.exit(0, "")
	}
	j := jobOf(t, 1, writerFunc(func() { heard <- struct{}{} }))
	j.Stdin = unread{t}
	if _, err := w.run(j); err != nil {
		t.Error(err)
	}
	w.idle()
}

// All replicas get all of the input, each at its pace; one that takes nothing makes the others wait
// only when a bound is reached, and not when it has left.
func TestFeedersOfReplicas(t *testing.T) {
	input := make([]byte, 3*inputBehind)
	for i := range input {
		input[i] = byte(i >> 8)
	}
	poked := make(chan struct{}, 1)
	in := newStdin()
	var feeders []*feeder
	for range 3 {
		f := &feeder{in: in, poke: func() {
			select {
			case poked <- struct{}{}:
			default:
			}
		}}
		f.join()
		feeders = append(feeders, f)
	}
	go in.read(bytes.NewReader(input)) // ends with the input
	got := make([][]byte, 3)
	// run makes the first feeders take, until the first one has this many bytes.
	run := func(first, until int) {
		for len(got[0]) < until {
			idle := true
			for i, f := range feeders[:first] {
				if m := f.next().GetInput(); m != nil {
					got[i], idle = append(got[i], m.Data...), false
					f.acknowledged(uint64(len(got[i])))
				}
			}
			if !idle {
				continue
			}
			select {
			case <-poked:
			case <-time.After(patience):
				t.Fatalf("%d and %d bytes came, and no word of more", len(got[0]), len(got[1]))
			}
		}
	}
	run(2, inputBehind)
	if f := feeders[0]; f.next() != nil || len(in.held) != inputBehind {
		t.Errorf("%d bytes are kept for a replica that takes none, at most %d may be", len(in.held), inputBehind)
	}
	feeders[2].leave()
	run(2, len(input))
	run(1, len(input))
	for i := range 2 {
		if !bytes.Equal(got[i], input[:len(got[i])]) || len(got[i]) < len(input)-inputPiece {
			t.Errorf("replica %d took %d bytes that are not the first of %d", i, len(got[i]), len(input))
		}
	}
	if feeders[2].next() != nil {
		t.Error("a feeder that has left sends")
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestFilesAreNamedByWhereTheyAre(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for _, name := range []string{"prog", "data/a", "data/b"} {
		os.MkdirAll(filepath.Dir(name), 0o700)
		if err := os.WriteFile(name, []byte(name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if name, file, err := Program("./prog"); err != nil || name != "./prog" || file.Name != "prog" {
		t.Error(name, err)
	}
	if name, file, err := Program("hostname"); err != nil || name != "hostname" || file != nil {
		t.Error(name, err)
	}
	files, err := Collect([]string{"data", "data/a", filepath.Join(dir, "prog")})
	var names []string
	for _, f := range files {
		names = append(names, f.Name)
	}
	if err != nil || strings.Join(names, " ") != "data/a data/b prog" {
		t.Error(names, err)
	}
	if _, err := Collect([]string{"prog", filepath.Join(dir, "prog")}); err == nil || !strings.Contains(err.Error(), "would both be prog") {
		t.Error(err)
	}
	os.Chmod("prog", 0o600)
	if _, _, err := Program("./prog"); !errors.Is(err, fs.ErrPermission) {
		t.Error(err)
	}
}

// A profile's groups are placed where their requirements are met, and ranks are numbered by group.
func TestPlaceByProfile(t *testing.T) {
	p, err := profile.Read("p.yaml", []byte("groups:\n- {name: master, processes: 1, memory: 4GiB}\n- {name: workers, processes: 3}\n"))
	if err != nil {
		t.Fatal(err)
	}
	host := func(name string, memory int64) Host {
		return Host{Host: allocate.Host{Node: overlay.NodeID{Site: "s", Name: name}, Processes: 3, Jobs: 1, Memory: memory}, State: "up"}
	}
	j := jobOf(t, 4, io.Discard)
	j.Profile = p
	if j.groups() != "master:1,workers:3" {
		t.Error(j.groups())
	}
	placed, err := place(j, []Host{host("small", 1<<30), host("big", 8<<30)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := placed.plan()
	if err != nil {
		t.Fatal(err)
	}
	where := map[int]string{}
	for _, h := range placed.processes(plan) {
		for _, process := range h.Processes {
			where[process.Rank] = h.Node.Name
		}
	}
	if len(where) != 4 || where[0] != "big" {
		t.Errorf("ranks are at %v", where)
	}
	if _, err := place(j, []Host{host("small", 1<<30)}, nil); err == nil || !strings.Contains(err.Error(), "memory") || !later(err) {
		t.Error(err)
	}
}

// With replicas each set has hosts of its own that suit the groups of a profile: those of one site where a site suits all of
// them, and sites that no other set has as long as there are such.
func TestReplicasByProfile(t *testing.T) {
	p, err := profile.Read("p.yaml", []byte("groups:\n- {name: master, processes: 1, memory: 4GiB}\n- {name: workers, processes: 2}\n"))
	if err != nil {
		t.Fatal(err)
	}
	const small, big = 1 << 30, 8 << 30
	host := func(site overlay.SiteID, name string, memory int64) Host {
		return Host{Host: allocate.Host{Node: overlay.NodeID{Site: site, Name: name}, Processes: 2, Jobs: 1, Memory: memory}, State: "up"}
	}
	for _, c := range []struct {
		name  string
		hosts []Host
		want  string // the sets' hosts, by rank
	}{
		{"a site each", []Host{host("a", "n1", small), host("b", "n1", big), host("b", "n2", small), host("c", "n1", small), host("c", "n2", big)},
			"b/n1 b/n1 b/n2; c/n2 c/n1 c/n1"},
		{"two sites for one set", []Host{host("a", "n1", big), host("b", "n1", small), host("c", "n1", big), host("c", "n2", small)},
			"c/n1 c/n1 c/n2; a/n1 b/n1 b/n1"},
		{"one site", []Host{host("a", "n1", big), host("a", "n2", small), host("a", "n3", big), host("a", "n4", small)},
			"a/n1 a/n1 a/n2; a/n3 a/n3 a/n4"},
		{"another site", []Host{host("a", "n1", big), host("a", "n2", small), host("a", "n3", big), host("a", "n4", small), host("b", "n1", big), host("b", "n2", small)},
			"a/n1 a/n1 a/n2; b/n1 b/n1 b/n2"},
		{"one master", []Host{host("a", "n1", big), host("a", "n2", small), host("a", "n3", small), host("a", "n4", small)}, ""},
	} {
		j := jobOf(t, 3, io.Discard)
		j.Profile, j.Place.Copies = p, 2
		if err := j.Check(); err != nil {
			t.Fatal(err)
		}
		placed, err := place(j, c.hosts, nil)
		if c.want == "" {
			if err == nil || !later(err) || !strings.Contains(err.Error(), "replicas 1, on other hosts than replicas 0 to 0: ") || !strings.Contains(err.Error(), "memory") {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		plan, err := placed.plan()
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		var sets [2][3]string
		for _, h := range placed.processes(plan) {
			for _, q := range h.Processes {
				sets[q.Copy][q.Rank] = h.Node.Key()
			}
		}
		if got := strings.Join(sets[0][:], " ") + "; " + strings.Join(sets[1][:], " "); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
		if got, want := placed.nodesOfRanks(plan), sets[0]; got[0].Key() != want[0] || got[2].Key() != want[2] {
			t.Errorf("%s: the ranks' places are %v, want %v", c.name, got, want)
		}
	}
}

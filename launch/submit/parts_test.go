package submit

import (
	"bytes"
	"io"
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
	f := newFeeder(func() {
		select {
		case poked <- struct{}{}:
		default:
		}
	})
	go f.read(bytes.NewReader(input)) // ends with the input
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
	f := newFeeder(func() {})
	ended := make(chan struct{})
	go func() { // ends by close
		f.read(zeros{})
		close(ended)
	}()
	f.close()
	select {
	case <-ended:
	case <-time.After(patience):
		t.Fatal("the reader still reads")
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
	if _, _, err := Program("./prog"); err == nil || !strings.Contains(err.Error(), "chmod +x") {
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

package detached

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/testload"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Who begins at the end of a stream that is written meanwhile finds it, however soon its pieces are removed.
func TestSkipBesideAWriter(t *testing.T) {
	s := &stream{dir: t.TempDir(), name: "stdout", size: 1}
	over := make(chan error, 1)
	go func() {
		_, err := s.Write(make([]byte, 5000))
		over <- err
	}()
	for writing := true; writing; {
		select {
		case err := <-over:
			if writing = false; err != nil {
				t.Fatal(err)
			}
		default:
		}
		f := &follower{dir: s.dir, name: s.name, to: io.Discard, missing: func(n int64) { t.Errorf("%d bytes are missing", n) }}
		err := f.skip()
		f.close()
		if err != nil {
			t.Fatal(err)
		}
	}
}

// kept returns the sizes of the pieces of a stream by their offset, and the sum.
func kept(t *testing.T, dir, name string) (sizes map[int64]int64, sum int64) {
	t.Helper()
	sizes = map[int64]int64{}
	f := &follower{dir: dir, name: name}
	all, err := f.offsets()
	if err != nil {
		t.Fatal(err)
	}
	for _, offset := range all {
		info, err := os.Stat(filepath.Join(dir, pieceName(name, offset)))
		if err != nil {
			t.Fatal(err)
		}
		sizes[offset] = info.Size()
		sum += info.Size()
	}
	return sizes, sum
}

// Of a long stream the first half of the limit is kept and the last, never more than the limit.
func TestPiecesKept(t *testing.T) {
	s := &stream{dir: t.TempDir(), name: "stdout", size: 10}
	for range 30 {
		if n, err := s.Write([]byte("seven..")); n != 7 || err != nil {
			t.Fatal(n, err)
		}
		if _, sum := kept(t, s.dir, s.name); sum > 80 {
			t.Fatalf("%d bytes are kept", sum)
		}
	}
	if sizes, _ := kept(t, s.dir, s.name); fmt.Sprint(sizes) != "map[0:10 10:10 20:10 30:10 170:10 180:10 190:10 200:10]" {
		t.Errorf("kept are %v", sizes)
	}
}

// Whenever followers read, each gets the bytes of the stream in order, and hears how many it does not get.
func TestFollowersReadWhatIsKept(t *testing.T) {
	seeds := uint64(6)
	if testload.Full() {
		seeds = 50
	}
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 0))
		s := &stream{dir: t.TempDir(), name: "stderr", size: 1 + rng.Int64N(20)}
		var all []byte
		var got [2][]byte // of two followers, with a 0 for each byte that is missing
		var followers [2]*follower
		for i := range followers {
			followers[i] = &follower{dir: s.dir, name: s.name, to: appender{&got[i]}, missing: func(n int64) { got[i] = append(got[i], make([]byte, n)...) }}
			defer followers[i].close()
		}
		for range 30 {
			p := make([]byte, rng.IntN(40))
			for i := range p {
				p[i] = byte(1 + rng.IntN(255))
			}
			all = append(all, p...)
			if _, err := s.Write(p); err != nil {
				t.Fatal(err)
			}
			if f := followers[rng.IntN(2)]; rng.IntN(3) == 0 {
				if err := f.read(); err != nil {
					t.Fatal(err)
				}
			}
		}
		_, sum := kept(t, s.dir, s.name)
		for i, f := range followers {
			if err := f.read(); err != nil {
				t.Fatal(err)
			}
			if len(got[i]) != len(all) {
				t.Fatalf("seed %d: follower %d read %d bytes of %d", seed, i, len(got[i]), len(all))
			}
			lacks := 0
			for k, b := range got[i] {
				if b == 0 {
					lacks++
				} else if b != all[k] {
					t.Fatalf("seed %d: follower %d read a wrong byte at %d", seed, i, k)
				}
			}
			if lacks > len(all)-int(sum) {
				t.Errorf("seed %d: follower %d lacks %d bytes, though %d of %d are kept", seed, i, lacks, sum, len(all))
			}
		}
		s.file.Close()
	}
}

// A follower that reads while the stream is written misses nothing of what is kept.
func TestFollowersReadWhatIsBeingWritten(t *testing.T) {
	rounds := 6
	if testload.Full() {
		rounds = 30
	}
	for range rounds {
		s := &stream{dir: t.TempDir(), name: "stdout", size: 64}
		want := bytes.Repeat([]byte("0123456789"), 50) // in 8 pieces, of which none is removed
		written := make(chan error, 1)
		go func() {
			for part := range slices.Chunk(want, 3) {
				if _, err := s.Write(part); err != nil {
					written <- err
					return
				}
			}
			written <- s.file.Close()
		}()
		var got []byte
		f := &follower{dir: s.dir, name: s.name, to: appender{&got}, missing: func(n int64) { t.Errorf("%d bytes are missing after %d", n, len(got)) }}
		for over := false; !over; {
			select {
			case err := <-written:
				if over = true; err != nil {
					t.Fatal(err)
				}
			default:
			}
			if err := f.read(); err != nil {
				t.Fatal(err)
			}
		}
		f.close()
		if !bytes.Equal(got, want) {
			t.Errorf("read %q", got)
		}
	}
}

type appender struct{ to *[]byte }

func (a appender) Write(p []byte) (int, error) {
	*a.to = append(*a.to, p...)
	return len(p), nil
}

// begin begins a job whose id ends with a digit.
func begin(t *testing.T, root string, digit int) *Driver {
	t.Helper()
	d, err := Begin(root, idOf(digit), []string{"program", "word"}, MinLimit)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func idOf(digit int) overlay.JobID {
	return overlay.JobID(fmt.Sprintf("program-%x%031x", digit, 0))
}

func find(t *testing.T, root, name string) *Job {
	t.Helper()
	j, err := Find(root, name)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func TestAJobFromItsBeginToItsEnd(t *testing.T) {
	root := filepath.Join(t.TempDir(), "isthmus", "jobs")
	if _, err := Find(root, "program"); !errors.Is(err, ErrUnknown) {
		t.Errorf("without any job: %v", err)
	}
	d := begin(t, root, 1)
	other := begin(t, root, 2)
	if _, err := Find(root, "program-"); err == nil || !strings.Contains(err.Error(), "2 detached jobs of yours begin so") {
		t.Error(err)
	}
	for name, mode := range map[string]os.FileMode{".": 0o700, stateFile: 0o600, driverFile: 0o600} {
		if info, err := os.Stat(filepath.Join(d.dir, name)); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v; want mode %v", name, info, err, mode)
		}
	}
	j := find(t, root, "program-1")
	if j.ID != idOf(1) || j.Phase != Starting || fmt.Sprint(j.Argv) != "[program word]" || j.PID != os.Getpid() {
		t.Errorf("%+v", j)
	}
	fmt.Fprint(d.Stdout(), "early\n")
	if err := d.Running(); err != nil {
		t.Fatal(err)
	}
	if j = find(t, root, "program-1"); j.Phase != Running || j.Started.IsZero() {
		t.Errorf("%+v", j)
	}

	// One reads from the beginning, one from here on.
	var all, late, complaints bytes.Buffer
	ended := make(chan error, 2)
	begun := &notifier{to: &all, once: make(chan struct{})}
	go func() { ended <- find(t, root, "program-1").Follow(t.Context(), false, begun, &complaints) }()
	f := &follower{dir: d.dir, name: stdoutName, to: &late}
	if err := f.skip(); err != nil {
		t.Fatal(err)
	}
	defer f.close()
	<-begun.once
	fmt.Fprint(d.Stdout(), "late\n")
	fmt.Fprint(d.Stderr(), "complaint\n")
	if err := d.End(9, "rank 0: exit status 9"); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil || all.String() != "early\nlate\n" || complaints.String() != "complaint\n" {
		t.Errorf("%v; it read %q and %q", err, all.String(), complaints.String())
	}
	if err := f.read(); err != nil || late.String() != "late\n" {
		t.Errorf("%v; who came late read %q", err, late.String())
	}
	if j = find(t, root, string(idOf(1))); j.Phase != Ended || j.Status != 9 || j.Error != "rank 0: exit status 9" {
		t.Errorf("%+v", j)
	}
	if err := j.Signal(0); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("a signal to a driver that has ended: %v", err)
	}
	if err := find(t, root, "program-2").Signal(0); err != nil {
		t.Errorf("a signal to a driver that lives: %v", err)
	}
	if list, err := List(root); err != nil || len(list) != 2 || list[0].ID != idOf(1) {
		t.Errorf("%v, %v", list, err)
	}
	other.End(0, "")
}

// notifier closes once at the first Write.
type notifier struct {
	to     io.Writer
	once   chan struct{}
	closed bool
}

func (n *notifier) Write(p []byte) (int, error) {
	if !n.closed {
		n.closed = true
		close(n.once)
	}
	return n.to.Write(p)
}

// Without its lock a job that has not ended is lost, but not by what another host sees.
func TestALostJob(t *testing.T) {
	root := t.TempDir()
	d := begin(t, root, 1)
	fmt.Fprint(d.Stdout(), "all there is\n")
	d.lock.Close() // as the kernel does when the driver dies
	j := find(t, root, "program")
	if j.Phase != Lost {
		t.Errorf("%+v", j)
	}
	var out bytes.Buffer
	if err := j.Follow(t.Context(), false, &out, &out); !errors.Is(err, ErrLost) || out.String() != "all there is\n" {
		t.Errorf("%v, %q", err, out.String())
	}
	d.state.Host = "elsewhere"
	if err := d.state.write(d.dir); err != nil {
		t.Fatal(err)
	}
	j = find(t, root, "program")
	if err := j.Follow(t.Context(), false, io.Discard, io.Discard); j.Phase != Starting || !errors.Is(err, ErrElsewhere) {
		t.Errorf("%+v, %v", j, err)
	}
	if err := j.Signal(0); !errors.Is(err, ErrElsewhere) {
		t.Errorf("a signal to a driver on another host: %v", err)
	}
}

// Who follows a job may leave; who waits for its end too.
func TestFollowersLeave(t *testing.T) {
	root := t.TempDir()
	d := begin(t, root, 1)
	j := find(t, root, "program")
	gone, leave := context.WithCancelCause(t.Context())
	why := errors.New("interrupted")
	leave(why)
	if err := j.Follow(gone, true, io.Discard, io.Discard); err != why {
		t.Error(err)
	}
	if err := j.Await(gone); err != why {
		t.Error(err)
	}
	d.End(0, "")
	if err := j.Await(gone); err != nil {
		t.Error(err)
	}
}

// The folders of jobs that ended long ago go when another begins; never that of one that runs.
func TestOldJobsAreRemoved(t *testing.T) {
	root := t.TempDir()
	running, lost, long, recent := begin(t, root, 1), begin(t, root, 2), begin(t, root, 3), begin(t, root, 4)
	lost.lock.Close()
	long.End(0, "")
	recent.End(0, "")
	for _, name := range []string{"1", "2"} { // 2 is that of a driver that begins just now
		if err := os.Mkdir(filepath.Join(root, newPrefix+name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	old := time.Now().Add(-KeepTime)
	long.state.Ended = old
	if err := long.state.write(long.dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{string(idOf(1)), string(idOf(2)), string(idOf(3)), newPrefix + "1"} {
		if err := os.Chtimes(filepath.Join(root, name), old, old); err != nil {
			t.Fatal(err)
		}
	}
	last := begin(t, root, 5)
	var left []overlay.JobID
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		left = append(left, overlay.JobID(e.Name()))
	}
	if want := []overlay.JobID{newPrefix + "2", idOf(1), idOf(4), idOf(5)}; !slices.Equal(left, want) {
		t.Errorf("left are %v, want %v", left, want)
	}
	running.End(0, "")
	last.End(0, "")
}

// The folder of another user, which root could read, is not taken for one's own.
func TestAnotherUsersJob(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a folder away")
	}
	root := t.TempDir()
	d := begin(t, root, 1)
	defer d.End(0, "")
	if err := os.Chown(d.dir, 1, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := Find(root, "program"); err == nil || !strings.Contains(err.Error(), "belongs to user 1: only that user sees the job") {
		t.Error(err)
	}
}

func TestRoot(t *testing.T) {
	t.Setenv("HOME", "/home/me")
	for set, want := range map[string]string{"/state": "/state/isthmus/jobs", "relative": "/home/me/.local/state/isthmus/jobs", "": "/home/me/.local/state/isthmus/jobs"} {
		t.Setenv("XDG_STATE_HOME", set)
		if got, err := Root(); got != want || err != nil {
			t.Errorf("with %q: %s, %v", set, got, err)
		}
	}
}

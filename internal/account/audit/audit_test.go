package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

var quiet = slog.New(slog.DiscardHandler)

func config(folder string) Config {
	return Config{Folder: folder, Size: 64 << 20, Keep: 8 << 30, OnFailure: "go-on"}
}

func open(t *testing.T, cfg Config) *Log {
	t.Helper()
	l, err := Open(cfg, "proxy p1", quiet)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// while serves the log while do runs.
func (l *Log) while(do func() error) error {
	defer l.Start()()
	return do()
}

// all returns the records of the folder's logs, one chain after the other, and fails when a chain
// is broken.
func all(t *testing.T, folder string) (records []Record, reports []Report) {
	t.Helper()
	chains, err := Chains([]string{folder})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range chains {
		report, err := Verify(c, Head{})
		if err != nil || len(report.Faults) > 0 {
			t.Fatalf("%+v, %v", report, err)
		}
		reports = append(reports, report)
		if _, err := Read(c.Files, func(r *Record) error { records = append(records, *r); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	return records, reports
}

func events(records []Record) string {
	var words []string
	for _, r := range records {
		words = append(words, string(r.Event))
	}
	return strings.Join(words, " ")
}

func TestLogOverRestarts(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "audit")
	for range 3 {
		l := open(t, config(folder))
		stop := l.Start()
		l.Append(Record{Event: LinkEnd, User: "alice", Sent: 5})
		stop()
	}
	records, reports := all(t, folder)
	const once = "file start link-end stop"
	if got := events(records); got != once+" "+once+" "+once {
		t.Errorf("events %s", got)
	}
	if r := reports[0]; len(reports) != 1 || r.Files != 3 || r.Records != 12 || r.First != 1 || len(r.Warnings) != 0 {
		t.Errorf("%+v", reports)
	}
	for i, r := range records {
		if r.Seq != uint64(i+1) || r.Daemon != "proxy p1" || r.Time.IsZero() {
			t.Errorf("record %d: %+v", i, r)
		}
	}
}

func TestNoLog(t *testing.T) {
	t.Setenv("STATE_DIRECTORY", "")
	for _, folder := range []string{"", "none"} {
		l, err := Open(Config{Folder: folder}, "proxy p1", quiet)
		if l != nil || err != nil {
			t.Fatal(l, err)
		}
		l.Append(Record{})
		l.Start()()
		if l.Ready() != nil || l.Status() != nil {
			t.Error("a nil Log does something")
		}
	}
	t.Setenv("STATE_DIRECTORY", t.TempDir())
	l, err := Open(Config{}, "proxy p1", quiet)
	if err != nil || l.cfg.Folder != os.Getenv("STATE_DIRECTORY")+"/audit" {
		t.Fatal(l, err)
	}
	l.w.lock.Close()
	if _, err := Open(config("/proc/no-such-folder"), "proxy p1", quiet); err == nil || !strings.Contains(err.Error(), "audit.folder") {
		t.Errorf("a folder that cannot be made: %v", err)
	}
}

// Files end by size and by day, and the oldest are removed.
func TestRotation(t *testing.T) {
	folder := t.TempDir()
	cfg := config(folder)
	cfg.Size, cfg.Keep = 4<<10, 12<<10
	l := open(t, cfg)
	var clock atomic.Int64
	clock.Store(time.Date(2026, 11, 17, 23, 59, 0, 0, time.UTC).Unix())
	l.now = func() time.Time { return time.Unix(clock.Load(), 0) }
	written := func(n int) {
		for end := time.Now().Add(30 * time.Second); l.written.Load() < uint64(n); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%d records are written, want %d", l.written.Load(), n)
			}
		}
	}
	l.while(func() error {
		written(2) // file and start
		clock.Add(60)
		l.Append(Record{Event: Session, Reason: "past midnight"})
		written(4)
		for range 100 {
			n := l.written.Load()
			l.Append(Record{Event: Decision, Effect: Permitted, Reason: strings.Repeat("x", 300)})
			written(int(n) + 1)
		}
		return nil
	})
	files, err := filepath.Glob(folder + "/*.jsonl")
	if err != nil || len(files) > 4 || len(files) < 2 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, f := range files {
		if info, _ := os.Stat(f); info.Size() > 5<<10 {
			t.Errorf("%s has %d bytes", f, info.Size())
		}
	}
	records, reports := all(t, folder)
	if r := reports[0]; r.First == 1 || len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "begins with record") {
		t.Errorf("%+v", r)
	}
	if records[0].Event != File || records[len(records)-1].Event != Stop || !strings.Contains(files[0], ".20261118.") {
		t.Errorf("%v: %v", files, events(records))
	}
}

// An incomplete line after a crash stays, and the next file accounts for it.
func TestTornLine(t *testing.T) {
	folder := t.TempDir()
	l := open(t, config(folder))
	l.while(func() error { l.Append(Record{Event: Session}); return nil })
	files, _ := filepath.Glob(folder + "/*.jsonl")
	text, _ := os.ReadFile(files[0])
	os.WriteFile(files[0], text[:len(text)-20], 0o600)

	if _, reports := all(t, folder); len(reports[0].Warnings) != 1 || !strings.Contains(reports[0].Warnings[0], "unfinished") {
		t.Errorf("before the restart: %+v", reports)
	}
	l = open(t, config(folder))
	l.while(func() error { return nil })
	records, reports := all(t, folder)
	if got := events(records); got != "file start session file recovered start stop" || len(reports[0].Warnings) != 1 {
		t.Errorf("%s, %+v", got, reports)
	}
	// The same end without such a record is a fault.
	next, _ := filepath.Glob(folder + "/*.jsonl")
	text, _ = os.ReadFile(next[1])
	os.WriteFile(next[1], bytes.Replace(text, []byte("recovered"), []byte("session"), 1), 0o600)
	report, err := Verify(Chain{Files: next}, Head{})
	if err != nil || len(report.Faults) == 0 || !strings.Contains(report.Faults[0], "does not account for it") {
		t.Errorf("%+v, %v", report, err)
	}
}

// Whatever is changed in a log, Verify says where.
func TestVerifyFindsChanges(t *testing.T) {
	folder := t.TempDir()
	l := open(t, config(folder))
	l.while(func() error {
		for range 5 {
			l.Append(Record{Event: LinkEnd, User: "alice", Sent: 2e12})
		}
		return nil
	})
	records, reports := all(t, folder)
	files, _ := filepath.Glob(folder + "/*.jsonl")
	good, _ := os.ReadFile(files[0])
	lines := bytes.SplitAfter(good, []byte("\n"))
	head, err := ParseHead(reports[0].Head)
	if err != nil || head.Seq != uint64(len(records)) {
		t.Fatal(head, err)
	}
	swap := slices.Clone(lines)
	swap[3], swap[4] = swap[4], swap[3]
	rewritten, _ := chain(Head{}, records[:4]) // a whole new chain, shorter
	for name, tc := range map[string]struct {
		text []byte
		want string
	}{
		"whole":     {good, ""},
		"changed":   {bytes.Replace(good, []byte(`"sent":2000000000000`), []byte(`"sent":2000000000`), 1), ":4: record 4 does not follow"},
		"removed":   {slices.Concat(slices.Concat(lines[:3]...), slices.Concat(lines[4:]...)), ":4: record 5 follows record 3"},
		"swapped":   {slices.Concat(swap...), ":4: record 5 follows record 3"},
		"inserted":  {slices.Concat(slices.Concat(lines[:3]...), lines[2], slices.Concat(lines[3:]...)), ":4: record 3 follows record 3"},
		"no record": {bytes.Replace(good, []byte(`{"seq":4`), []byte(`{"sqe":4`), 1), `:4: not a record`},
		"cut":       {slices.Concat(lines[:5]...), "record 8, of which the head"},
		"forged":    {rewritten, "record 8, of which the head"},
	} {
		t.Run(name, func(t *testing.T) {
			changed := filepath.Join(t.TempDir(), filepath.Base(files[0]))
			os.WriteFile(changed, tc.text, 0o600)
			report, err := Verify(Chain{Files: []string{changed}}, head)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(report.Faults, "\n"); tc.want == "" && got != "" || !strings.Contains(got, tc.want) {
				t.Errorf("faults:\n%s\nwant %q", got, tc.want)
			}
		})
	}
}

// badFile fails on demand, after a partial write.
type badFile struct {
	file
	full *atomic.Bool
}

func (f badFile) Write(b []byte) (int, error) {
	if !f.full.Load() {
		return f.file.Write(b)
	}
	n, _ := f.file.Write(b[:len(b)/2])
	return n, syscall.ENOSPC
}

// On a full disk the daemon continues or refuses, as configured; lost records are counted, and the
// chain is intact.
func TestFullDisk(t *testing.T) {
	for _, mode := range []string{"go-on", "refuse"} {
		t.Run(mode, func(t *testing.T) {
			folder := t.TempDir()
			cfg := config(folder)
			cfg.OnFailure = mode
			said := new(lockedBuffer)
			l, err := Open(cfg, "proxy p1", slog.New(slog.NewTextHandler(said, nil)))
			if err != nil {
				t.Fatal(err)
			}
			var full atomic.Bool
			create := l.w.create
			l.w.create = func(path string) (file, error) {
				f, err := create(path)
				return badFile{f, &full}, err
			}
			until := func(what string, ok func(Status) bool) {
				t.Helper()
				for end := time.Now().Add(30 * time.Second); !ok(*l.Status()); time.Sleep(time.Millisecond) {
					if time.Now().After(end) {
						t.Fatalf("waited for %s: %+v", what, *l.Status())
					}
				}
			}
			l.while(func() error {
				l.Append(Record{Event: Session})
				until("three records", func(st Status) bool { return st.Written == 3 })
				full.Store(true)
				for range 10 {
					l.Append(Record{Event: LinkEnd})
				}
				until("a failure", func(st Status) bool { return st.Failing != "" && st.Waiting == 0 })
				if err := l.Ready(); (mode == "refuse") != errors.Is(err, overlay.ErrOverloaded) {
					t.Errorf("Ready: %v", err)
				}
				full.Store(false)
				until("room again", func(st Status) bool { return st.Failing == "" })
				if err := l.Ready(); err != nil {
					t.Errorf("Ready: %v", err)
				}
				return nil
			})
			records, reports := all(t, folder)
			ends := uint64(0)
			for _, r := range records {
				if r.Event == LinkEnd {
					ends++
				}
			}
			if ends+reports[0].Lost != 10 || reports[0].Lost == 0 || reports[0].Lost != l.Status().Lost {
				t.Errorf("%d of 10 written, %d lost\n%s", ends, reports[0].Lost, events(records))
			}
			if !strings.Contains(said.String(), "level=ERROR") || !strings.Contains(said.String(), "no space left") {
				t.Errorf("the daemon's log:\n%s", said)
			}
		})
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// Records that do not fit into the queue are lost without blocking, and the loss is recorded.
func TestQueueFull(t *testing.T) {
	folder := t.TempDir()
	l := open(t, config(folder))
	for range queueLen + 7 { // nothing writes yet
		l.Append(Record{Event: Decision, Effect: Permitted})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	l.Serve(ctx)
	records, reports := all(t, folder)
	if len(records) != queueLen+4 || reports[0].Lost != 7 || l.Status().Lost != 7 { // file, start, lost, stop
		t.Errorf("%d records, %+v", len(records), reports)
	}
}

// Two processes of one daemon, as in a handover, have a chain each.
func TestTwoProcesses(t *testing.T) {
	folder := t.TempDir()
	old, young := open(t, config(folder)), open(t, config(folder))
	old.while(func() error {
		return young.while(func() error {
			old.Append(Record{Event: LinkEnd})
			young.Append(Record{Event: LinkEnd})
			return nil
		})
	})
	records, reports := all(t, folder)
	if len(records) != 8 || len(reports) != 2 {
		t.Errorf("%d records in %+v", len(records), reports)
	}
	third := open(t, config(folder))
	if third.w.stem != "proxy-p1" || third.w.head.Seq != 4 {
		t.Errorf("the third writes %s from %v", third.w.stem, third.w.head)
	}
	third.w.lock.Close()
}

// A flood of refusals is some records and a sum.
func TestFlood(t *testing.T) {
	folder := t.TempDir()
	l := open(t, config(folder))
	l.while(func() error {
		for range 3000 {
			l.Append(Record{Event: Refusal, Rule: "no-ticket", Peer: "192.0.2.1:5", Reason: `a\b`})
		}
		l.Append(Record{Event: Refusal, Rule: "forged"})
		l.Append(Record{Event: LinkEnd})
		return nil
	})
	records, _ := all(t, folder)
	sum := Sum{By: []string{"rule"}, Zone: time.UTC}
	for _, r := range records {
		sum.Add(&r)
	}
	if len(records) > 2*sampleFirst+10 || !strings.Contains(events(records), "link-end") {
		t.Errorf("%d records", len(records))
	}
	counts := map[string]uint64{}
	for _, g := range sum.Groups() {
		counts[g.By["rule"]] = g.Records
	}
	if counts["no-ticket"] != 3000 || counts["forged"] != 1 {
		t.Errorf("%v", counts)
	}
	for _, r := range records {
		if strings.Contains(r.Reason, `\\\\`) {
			t.Errorf("escaped twice: %s", r.Reason)
		}
	}
}

// So is a flood of a peer's other records, of each kind that it causes, beside those of other peers.
func TestFloodOfOtherRecords(t *testing.T) {
	permitted := Record{Event: Decision, Effect: Permitted, Peer: "frontal a"}
	for name, c := range map[string]struct {
		record func(i int) Record
		most   int // records, the sum included
	}{
		"refused decisions": {func(i int) Record {
			return Record{Event: Decision, Effect: Refused, Peer: "frontal a", Rule: fmt.Sprint(i)}
		}, sampleDecisions + 1},
		"failed decisions": {func(i int) Record { return Record{Event: Decision, Effect: Failed, Peer: "frontal a"} }, sampleDecisions + 1},
		"sessions":         {func(i int) Record { return Record{Event: Session, Peer: fmt.Sprintf("frontal a 192.0.2.1:%d", i)} }, sampleFirst + 1},
		"refusals":         {func(i int) Record { return Record{Event: Refusal, Rule: "session", Peer: fmt.Sprint("192.0.2.1:", i)} }, sampleFirst + 1},
		"permitted":        {func(int) Record { return permitted }, 3000},
	} {
		var s sampler
		now, written := time.Now(), []Record(nil)
		add := func(r Record) {
			if r.Time = now; s.take(&r) {
				written = append(written, r)
			}
		}
		for i := range 3000 {
			add(c.record(i))
		}
		other := c.record(0)
		other.Peer, other.Rule = "frontal b 192.0.2.2:1", "another"
		add(other)
		if len(written) == 0 || written[len(written)-1].Peer != other.Peer {
			t.Errorf("%s: another's is not written", name)
		}
		written = append(written, s.collectDue(now.Add(sampleWindow), false)...)
		var n uint64
		for _, r := range written {
			n += max(r.Count, 1)
			if r.Event != other.Event || r.Effect != other.Effect {
				t.Errorf("%s: a record of %s %s", name, r.Event, r.Effect)
			}
		}
		if len(written) > c.most+1 || n != 3001 {
			t.Errorf("%s: %d records, which stand for %d", name, len(written), n)
		}
	}
}

// Many rules do not make the table of omitted refusals grow.
func TestSamplerBound(t *testing.T) {
	var s sampler
	now := time.Now()
	for i := range 10 * sampleKinds {
		s.take(&Record{Event: Refusal, Time: now, Rule: fmt.Sprint(i)})
	}
	if s.kinds.Len() > sampleKinds+1 {
		t.Errorf("%d kinds", s.kinds.Len())
	}
	if more := s.collectDue(now.Add(time.Second), false); more != nil {
		t.Errorf("before the window's end: %v", more)
	}
	if more := s.collectDue(now.Add(sampleWindow), false); len(more) != 1 || more[0].Rule != "(others)" {
		t.Errorf("at its end: %v", more)
	}
}

func TestQueueDoesNotBlock(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() {
		(*Log)(nil).Append(Record{Event: LinkEnd})
	}); n != 0 {
		t.Errorf("a nil Log allocates %v times", n)
	}
}

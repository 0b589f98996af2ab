package audit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// Bounds of a Log.
const (
	queueLen  = 8192 // queued records; further ones are lost, and counted
	batchLen  = 256  // records in one write
	syncEvery = time.Second
	sayEvery  = time.Hour   // the head, to the daemon's log
	nagEvery  = time.Minute // a failure to write, to the daemon's log

	retryEvery = 500 * time.Millisecond // after a failed write
)

// Log is a daemon's audit log. A nil Log accepts records and discards them. Safe for concurrent
// use.
//
// A record passed to Append reaches the file within a moment and the disk within syncEvery: a crash
// of the daemon loses the queue, a power failure at most the last second.
type Log struct {
	cfg    Config
	daemon string
	log    *slog.Logger
	now    func() time.Time

	queue   chan Record
	dropped atomic.Uint64 // dropped because the queue was full, and not recorded yet
	lost    atomic.Uint64 // since the start
	written atomic.Uint64 // likewise
	failing atomic.Pointer[error]
	wrote   atomic.Int64 // time of the last write, in Unix nanoseconds; 0 before the first

	w writer // used only by the goroutine in Serve
}

// Open finds the end of the daemon's existing log. It returns nil when the settings name no folder.
// The daemon is named as in its certificate: "proxy p1". Nothing is written until Serve.
func Open(cfg Config, daemon string, log *slog.Logger) (*Log, error) {
	switch {
	case cfg.Folder == none:
		return nil, nil
	case cfg.Folder == "" && os.Getenv("STATE_DIRECTORY") == "":
		return nil, nil
	case cfg.Folder == "":
		cfg.Folder = filepath.Join(os.Getenv("STATE_DIRECTORY"), "audit")
	}
	l := &Log{cfg: cfg, daemon: daemon, log: log, now: time.Now, queue: make(chan Record, queueLen)}
	if err := l.open(); err != nil {
		return nil, fmt.Errorf("audit log: %w; make the folder writable for the daemon, or name another (audit.folder)", err)
	}
	return l, nil
}

func (l *Log) open() error {
	if err := os.MkdirAll(l.cfg.Folder, folderMode); err != nil {
		return err
	}
	stem, lock, err := lockStem(l.cfg.Folder, l.daemon)
	if err != nil {
		return err
	}
	files, err := list(l.cfg.Folder, stem)
	if err == nil {
		l.w.before, err = recoverHead(files)
	}
	if err != nil {
		lock.Close()
		return err
	}
	l.w.stem, l.w.lock, l.w.head = stem, lock, l.w.before.head
	l.w.create = func(path string) (file, error) {
		return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, fileMode)
	}
	return nil
}

// Append queues a record; it never blocks. It fills in Seq, Time, Daemon and Prev.
func (l *Log) Append(r Record) {
	if l == nil {
		return
	}
	r.Time, r.Daemon = l.now(), l.daemon
	r.clean()
	select {
	case l.queue <- r:
	default:
		l.dropped.Add(1)
		l.lost.Add(1)
	}
}

// Ready returns why no new link may be set up: with on_failure refuse, while the log cannot be
// written. The error is an overlay.ErrOverloaded.
func (l *Log) Ready() error {
	if l == nil || l.cfg.OnFailure != "refuse" {
		return nil
	}
	if err := l.failing.Load(); err != nil {
		return fmt.Errorf("%w: %s refuses new links while its audit log cannot be written (audit.on_failure): %w", overlay.ErrOverloaded, l.daemon, *err)
	}
	return nil
}

// Status is the state of a Log; its JSON form is part of a daemon's status.
type Status struct {
	Written uint64 `json:"written"`           // records since the start
	Lost    uint64 `json:"lost"`              // likewise
	Waiting int    `json:"waiting"`           // in the queue
	Bound   int    `json:"bound"`             // of the queue
	Failing string `json:"failing,omitempty"` // why nothing can be written
}

// Status returns the current state; nil for a nil Log.
func (l *Log) Status() *Status {
	if l == nil {
		return nil
	}
	st := &Status{Written: l.written.Load(), Lost: l.lost.Load(), Waiting: len(l.queue), Bound: cap(l.queue)}
	if err := l.failing.Load(); err != nil {
		st.Failing = (*err).Error()
	}
	return st
}

// Start serves the log until the returned function is called, which waits until everything is
// written. A daemon must defer that function before anything that appends.
func (l *Log) Start() (stop func()) {
	if l == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var writing sync.WaitGroup
	writing.Go(func() { l.Serve(ctx) })
	return func() {
		cancel()
		writing.Wait()
	}
}

// Serve writes appended records until ctx ends, and then those appended before. It writes the
// records Start and Stop, and closes the log. Call it once.
func (l *Log) Serve(ctx context.Context) {
	defer l.w.lock.Close()
	begin := l.now()
	l.write([]Record{l.withSource(Record{Event: Start})})
	tick := time.NewTicker(syncEvery)
	defer tick.Stop()
	for {
		select {
		case r := <-l.queue:
			l.write(l.batch(r))
		case <-tick.C:
			l.flush(false)
		case <-ctx.Done():
			for len(l.queue) > 0 {
				l.write(l.batch(<-l.queue))
			}
			l.write(l.w.spare.collectDue(l.now(), true))
			l.write([]Record{l.withSource(Record{Event: Stop, Seconds: l.now().Sub(begin).Seconds()})})
			l.flush(true)
			if l.w.file != nil {
				l.w.file.Close()
			}
			return
		}
	}
}

// withSource completes a record that the log itself creates.
func (l *Log) withSource(r Record) Record {
	r.Time, r.Daemon = l.now(), l.daemon
	r.clean()
	return r
}

// batch returns r and other queued records, without the refusals that are left out.
func (l *Log) batch(r Record) []Record {
	var out []Record
	for n := 1; ; n++ {
		if l.w.spare.take(&r) {
			out = append(out, r)
		}
		if n == batchLen || len(l.queue) == 0 {
			return out
		}
		r = <-l.queue // only this goroutine takes from the queue
	}
}

// flush does the periodic work: it records what was left out or lost, syncs the file, and logs the
// chain's head.
func (l *Log) flush(end bool) {
	now := l.now()
	l.write(l.w.spare.collectDue(now, false))
	if l.w.file != nil && l.w.dirty {
		if err := l.w.file.Sync(); err != nil {
			l.fail(err, 0, 0)
		} else {
			l.w.dirty = false
		}
	}
	if l.w.head.Seq != 0 && (end || now.Sub(l.w.headLogged) >= sayEvery) {
		l.w.headLogged = now
		l.log.Info("audit log", "head", l.w.head.String(), "folder", l.cfg.Folder, "log", l.w.stem)
	}
}

// write appends the records to the file, each as the next of the chain, after those that the log
// owes: that a file begins, that records were lost.
func (l *Log) write(records []Record) {
	l.w.unsaid += l.dropped.Swap(0)
	failing := l.failing.Load()
	if failing != nil && l.now().Sub(l.w.tried) < retryEvery {
		l.fail(*failing, owed(records), 0)
		return
	}
	if l.w.unsaid > 0 || failing != nil {
		lost := Record{Event: Lost, Count: l.w.unsaid, Reason: "records were lost: they could not be written, or not fast enough"}
		records = append([]Record{l.withSource(lost)}, records...)
	}
	if len(records) == 0 {
		return
	}
	l.w.tried = l.now()
	var first []Record
	day := records[0].Time.Format(dayFormat)
	if l.w.file == nil || l.w.size >= int64(l.cfg.Size) || day != l.w.day {
		var err error
		if first, err = l.newFile(day); err != nil {
			l.fail(err, owed(records), 0)
			return
		}
		records = append(first, records...)
	}
	buf, heads := chain(l.w.head, records)
	n, err := l.w.file.Write(buf)
	if err == nil && n < len(buf) {
		err = errors.New("a write was cut short")
	}
	done := 0
	for done < len(heads) && heads[done].end <= n {
		if records[done].Event == Lost {
			l.w.unsaid = 0
		}
		l.w.head = heads[done].Head
		done++
	}
	l.w.size += int64(n)
	l.w.dirty = true
	l.written.Add(uint64(done))
	if done > 0 {
		l.wrote.Store(l.now().UnixNano())
	}
	if err != nil {
		torn := n
		if done > 0 {
			torn -= heads[done-1].end
		}
		l.fail(err, owed(records[done:]), torn)
		return
	}
	if len(first) > 0 {
		l.prune()
	}
	if l.failing.Swap(nil) != nil {
		l.log.Warn("the audit log can be written again", "lost", l.lost.Load())
	}
}

// owed returns how many records are lost if these are not written; those that the log creates are
// created anew.
func owed(records []Record) (n uint64) {
	for _, r := range records {
		if r.Event != File && r.Event != Recovered && r.Event != Lost {
			n++
		}
	}
	return n
}

// A placed head is a head with the offset of the end of its line.
type placed struct {
	Head
	end int
}

// chain numbers the records from head on, and encodes them.
func chain(head Head, records []Record) (buf []byte, heads []placed) {
	for i := range records {
		r := &records[i]
		r.Seq, r.Prev = head.Seq+1, head.Hash
		from := len(buf)
		buf = r.encode(buf)
		head = Head{r.Seq, hashOf(buf[from:])}
		heads = append(heads, placed{head, len(buf)})
	}
	return buf, heads
}

// A writer is the state of the goroutine in Serve.
type writer struct {
	stem   string
	lock   *os.File
	create func(path string) (file, error)

	file       file // nil: the next record begins one
	path       string
	day        string
	size       int64
	dirty      bool // written since the last Sync
	head       Head
	before     before // of the next new file
	unsaid     uint64 // lost records that the log has not recorded yet
	spare      sampler
	headLogged time.Time // when the head was logged
	tried      time.Time // time of the last attempt to write
	nagged     time.Time // when a failure to write was logged
}

// A file is the file that the log is written to.
type file interface {
	Write([]byte) (int, error)
	Sync() error
	Close() error
}

// newFile begins a file and returns the records with which it must begin.
func (l *Log) newFile(day string) ([]Record, error) {
	if l.w.file != nil {
		l.w.before = before{file: filepath.Base(l.w.path)}
		err := l.w.file.Sync()
		if err = errors.Join(err, l.w.file.Close()); err != nil {
			l.log.Error("the audit log may miss its last second", "file", l.w.path, "error", err)
		}
		l.w.file = nil
	}
	path := filepath.Join(l.cfg.Folder, fileName(l.w.stem, l.w.head.Seq+1, day))
	f, err := l.w.create(path)
	if errors.Is(err, os.ErrExist) { // begun before, but nothing of it was written
		if err = os.Remove(path); err == nil {
			f, err = l.w.create(path)
		}
	}
	if err != nil {
		return nil, err
	}
	l.w.file, l.w.path, l.w.day, l.w.size, l.w.dirty = f, path, day, 0, false
	text := "the first file"
	if l.w.before.file != "" {
		text = "continues " + l.w.before.file
	}
	first := []Record{l.withSource(Record{Event: File, Reason: text})}
	if l.w.before.torn > 0 {
		first = append(first, l.withSource(Record{Event: Recovered, Reason: fmt.Sprintf(
			"%s ends with %d bytes of an unfinished line", l.w.before.file, l.w.before.torn)}))
	}
	l.w.headLogged = time.Time{} // log the head with the next flush
	return first, nil
}

// prune removes the oldest files beyond the limit.
func (l *Log) prune() {
	files, err := list(l.cfg.Folder, l.w.stem)
	for _, f := range beyondLimit(files, int64(l.cfg.Keep)) {
		l.log.Info("audit file removed: the log is larger than audit.keep", "file", f.path)
		err = errors.Join(err, os.Remove(f.path))
	}
	if err != nil {
		l.log.Warn("audit files stay beyond audit.keep", "error", err)
	}
}

// fail counts lost records and logs the reason. The file that failed, which ends with torn bytes of
// a line, is left as it is; later records go to a new one.
func (l *Log) fail(err error, lost uint64, torn int) {
	l.lost.Add(lost)
	l.w.unsaid += lost
	if l.w.file != nil {
		if l.w.size > 0 {
			l.w.before = before{file: filepath.Base(l.w.path), torn: torn}
		}
		l.w.file.Close() // it has failed already
		l.w.file = nil
	}
	l.failing.Store(&err)
	if now := l.now(); now.Sub(l.w.nagged) >= nagEvery {
		l.w.nagged = now
		next := "going on without"
		if l.cfg.OnFailure == "refuse" {
			next = "refusing new links"
		}
		l.log.Error("the audit log cannot be written; "+next, "error", err, "lost", l.lost.Load(), "folder", l.cfg.Folder)
	}
}

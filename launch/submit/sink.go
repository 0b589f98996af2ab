package submit

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/internal/job/ranks"
	"github.com/isthmus-grid/isthmus/launch/allocate"
	"github.com/isthmus-grid/isthmus/launch/nodeservice/nodepb"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Fetcher receives the files fetched from hosts, in pieces. The pieces of a file come in order and
// from one goroutine; those of different hosts concurrently. For a file that cannot be fetched,
// Fail is called with the reason instead of the last piece. Drop is called for a host after all of
// its pieces, if its files do not count: other replicas of its ranks did it all.
type Fetcher interface {
	Piece(from overlay.NodeID, name string, mode os.FileMode, data []byte, end bool) error
	Fail(from overlay.NodeID, name string, why error)
	Drop(from overlay.NodeID)
}

// sink receives the output of processes. Conversations use it concurrently.
type sink struct {
	out      ranks.Output
	files    Fetcher
	replicas func(rank int) int // which write one standard output
	secret   string             // of the marks in the output of replicas (package marks); empty: there are none

	mu      sync.Mutex                         // guards the fields below
	streams map[allocate.Process][2]*stdStream // of each process; replicas share the first one
	merged  map[int]*stdStream                 // by rank: the standard output of its replicas
	seats   map[int]allocate.Process           // of processes in place of lost replicas, by number
	broken  map[string]bool                    // files that cannot be written, by host and name
}

func newSink(out ranks.Output, files Fetcher, replicas func(rank int) int) *sink {
	return &sink{
		out: out, files: files, replicas: replicas, streams: map[allocate.Process][2]*stdStream{}, merged: map[int]*stdStream{},
		seats: map[int]allocate.Process{}, broken: map[string]bool{},
	}
}

// joins adds a process, by its number, that comes in place of a lost replica.
func (s *sink) joins(number int, seat allocate.Process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seats[number] = seat
}

// seat returns which replica a process is.
func (s *sink) seat(p allocate.Process) allocate.Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	if seat, ok := s.seats[p.Rank]; ok {
		return seat
	}
	return p
}

// output forwards a process's output.
func (s *sink) output(from overlay.NodeID, m *nodepb.Output) error {
	p, i := m.Process.Value(), 0
	if m.Stderr {
		i = 1
	}
	seat := s.seat(p)
	both, err := s.of(from, p, seat)
	if err != nil {
		return err
	}
	return both[i].write(p, seat, m.Data)
}

// ended takes that a process will write no more: because its program ended by itself, or because it died, with a nil m with
// its host. One that comes in place of a lost replica has an exit status of its own if it could not take that place.
func (s *sink) ended(p allocate.Process, m *nodepb.Exited) error {
	seat := s.seat(p)
	died := m == nil || m.Signal != "" || m.Status > 0 && p != seat
	if s.replicas(seat.Rank) == 1 {
		return nil
	}
	both, err := s.of(overlay.NodeID{}, p, seat)
	if err != nil {
		return nil // a replica that writes gets the error
	}
	return both[0].end(p, seat, died)
}

// of returns the standard output and standard error of a process.
func (s *sink) of(from overlay.NodeID, p, seat allocate.Process) (both [2]*stdStream, err error) {
	place := ranks.Place{Host: from.String(), Rank: p.Rank, Copy: p.Copy}
	n := s.replicas(seat.Rank)
	if n > 1 {
		if seat.Copy >= n {
			return both, fmt.Errorf("%s has output of replica %d of a job with %d", from, seat.Copy, n)
		}
		place = ranks.Place{Rank: seat.Rank, Copy: seat.Copy, Merged: true}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if both, ok := s.streams[p]; ok {
		return both, nil
	}
	stdout, stderr, err := s.out.Of(place)
	if err != nil {
		return both, err
	}
	both = [2]*stdStream{{to: stdout}, {to: stderr}}
	if n > 1 {
		if s.merged[seat.Rank] == nil {
			both[0].mergeReplicas(n, s.secret)
			s.merged[seat.Rank] = both[0]
		}
		both[0] = s.merged[seat.Rank]
	}
	s.streams[p] = both
	return both, nil
}

// ofReplicas returns the outputs that replicas share, by rank.
func (s *sink) ofReplicas() map[int]*stdStream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.merged)
}

// faults returns what is wrong with outputs now, each once, see stdStream.fault.
func (s *sink) faults(now time.Time) (all []string) {
	for rank, stream := range s.ofReplicas() {
		if what := stream.fault(now); what != "" {
			all = append(all, fmt.Sprintf("rank %d: %s", rank, what))
		}
	}
	return all
}

// close prints what remains, when all processes have ended that the job waits for. It returns what is wrong with the
// outputs, ascending by rank.
func (s *sink) close() (all []error) {
	streams := s.ofReplicas()
	for _, rank := range slices.Sorted(maps.Keys(streams)) {
		what, err := streams[rank].close()
		if err != nil {
			all = append(all, outputError(rank, err))
		} else if what != "" {
			all = append(all, &ranks.ExitError{Rank: rank, Status: 1, Err: errors.New(what)})
		}
	}
	return all
}

// file forwards a piece of a file. A file that fails does not end the job.
func (s *sink) file(from overlay.NodeID, m *nodepb.FileChunk) {
	file := string(m.Name)
	name := from.Key() + "/" + file
	s.mu.Lock()
	broken := s.broken[name] || s.files == nil
	s.mu.Unlock()
	if broken {
		return
	}
	var err error
	if len(m.Fault) > 0 {
		err = errors.New(string(m.Fault))
	} else {
		err = s.files.Piece(from, file, os.FileMode(m.Mode).Perm(), m.Data, m.End)
	}
	if err != nil {
		s.mu.Lock()
		s.broken[name] = true
		s.mu.Unlock()
		s.files.Fail(from, file, err)
	}
}

// Folder is a Fetcher that writes files below a folder: SITE/NODE/NAME, or only NAME when it is
// Flat. A file appears when it is complete.
type Folder struct {
	Dir  string
	Flat bool

	mu     sync.Mutex // guards the fields below
	open   map[string]*os.File
	failed map[overlay.NodeID][]error
	got    map[overlay.NodeID][]string
}

// Piece implements Fetcher.
func (f *Folder) Piece(from overlay.NodeID, name string, mode os.FileMode, data []byte, end bool) (err error) {
	path, err := f.path(from, name)
	if err != nil {
		return err
	}
	f.mu.Lock()
	file := f.open[path]
	f.mu.Unlock()
	part := path + ".part"
	if file == nil {
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			return err
		}
		if file, err = os.OpenFile(part, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, mode|0o200); err != nil {
			return err
		}
		f.keep(path, file)
	}
	_, err = file.Write(data)
	if err == nil && !end {
		return nil
	}
	f.keep(path, nil)
	err = errors.Join(err, file.Close())
	if err == nil {
		err = os.Rename(part, path)
	}
	if err != nil {
		os.Remove(part)
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.got == nil {
		f.got = map[overlay.NodeID][]string{}
	}
	f.got[from] = append(f.got[from], path)
	return nil
}

// path returns where a file is written. It refuses names outside the folder.
func (f *Folder) path(from overlay.NodeID, name string) (string, error) {
	local := filepath.FromSlash(name)
	if !filepath.IsLocal(local) {
		return "", fmt.Errorf("the node names a file outside of the job's folder: %q", name)
	}
	if f.Flat {
		return filepath.Join(f.Dir, local), nil
	}
	return filepath.Join(f.Dir, string(from.Site), from.Name, local), nil
}

func (f *Folder) keep(path string, file *os.File) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open == nil {
		f.open = map[string]*os.File{}
	}
	if file == nil {
		delete(f.open, path)
	} else {
		f.open[path] = file
	}
}

// Fail implements Fetcher.
func (f *Folder) Fail(from overlay.NodeID, name string, why error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail(from, fmt.Errorf("%s of %s: %w", name, from, why))
	if path, err := f.path(from, name); err == nil && f.open[path] != nil {
		f.open[path].Close()
		os.Remove(path + ".part")
		delete(f.open, path)
	}
}

func (f *Folder) fail(from overlay.NodeID, err error) {
	if f.failed == nil {
		f.failed = map[overlay.NodeID][]error{}
	}
	f.failed[from] = append(f.failed[from], err)
}

// Drop implements Fetcher: it removes the files of a host, and the folders that are empty then, and
// forgets which failed. It is of no use with Flat, where a file may be another host's.
func (f *Folder) Drop(from overlay.NodeID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.Flat {
		return
	}
	all := f.got[from]
	of := filepath.Join(f.Dir, string(from.Site), from.Name) + string(filepath.Separator)
	for path, file := range f.open {
		if strings.HasPrefix(path, of) {
			file.Close()
			delete(f.open, path)
			all = append(all, path+".part")
		}
	}
	delete(f.got, from)
	delete(f.failed, from)
	for _, path := range all {
		if err := os.Remove(path); err != nil {
			f.fail(from, err)
		}
		for dir := filepath.Dir(path); dir != filepath.Clean(f.Dir) && os.Remove(dir) == nil; {
			dir = filepath.Dir(dir)
		}
	}
}

// Close removes incomplete files, and returns the complete ones, sorted, and an error for the
// others. Call it when the job is over.
func (f *Folder) Close() (got []string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for path, file := range f.open {
		file.Close()
		os.Remove(path + ".part")
		f.fail(overlay.NodeID{}, fmt.Errorf("%s did not come to its end", strings.TrimPrefix(path, f.Dir+string(filepath.Separator))))
	}
	f.open = nil
	got = slices.Sorted(slices.Values(slices.Concat(slices.Collect(maps.Values(f.got))...)))
	return got, errors.Join(slices.Concat(slices.Collect(maps.Values(f.failed))...)...)
}

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

	"github.com/isthmus-grid/isthmus/internal/job/ranks"
	"github.com/isthmus-grid/isthmus/launch/allocate"
	"github.com/isthmus-grid/isthmus/launch/gate/gatepb"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Fetcher takes the files that come back from hosts, by pieces. The pieces of a file
// come in order and from one goroutine; those of different hosts at the same time. How a
// file that cannot be had ends is Fail, with the reason, in place of the last piece.
type Fetcher interface {
	Piece(from overlay.NodeID, name string, mode os.FileMode, data []byte, end bool) error
	Fail(from overlay.NodeID, name string, why error)
}

// sink takes what processes wrote. Conversations use it at the same time.
type sink struct {
	out   ranks.Output
	files Fetcher

	mu      sync.Mutex // guards the fields below
	writers map[allocate.Process]*[2]io.Writer
	broken  map[string]bool // files that cannot be taken, by host and name
}

func newSink(out ranks.Output, files Fetcher) *sink {
	return &sink{out: out, files: files, writers: map[allocate.Process]*[2]io.Writer{}, broken: map[string]bool{}}
}

// output passes on what a process wrote.
func (s *sink) output(from overlay.NodeID, m *gatepb.Output) error {
	w, err := s.writer(from, processOf(m.Process), m.Stderr)
	if err != nil {
		return err
	}
	_, err = w.Write(m.Data)
	return err
}

func (s *sink) writer(from overlay.NodeID, p allocate.Process, stderr bool) (io.Writer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.writers[p]
	if w == nil {
		out, err, fault := s.out.Of(ranks.Place{Host: from.String(), Rank: p.Rank, Copy: p.Copy})
		if fault != nil {
			return nil, fault
		}
		w = &[2]io.Writer{out, err}
		s.writers[p] = w
	}
	if stderr {
		return w[1], nil
	}
	return w[0], nil
}

// file passes a piece of a file on. A file that fails does not end the job.
func (s *sink) file(from overlay.NodeID, m *gatepb.FileChunk) {
	name := from.String() + "/" + m.Name
	s.mu.Lock()
	broken := s.broken[name] || s.files == nil
	s.mu.Unlock()
	if broken {
		return
	}
	var err error
	if m.Fault != "" {
		err = errors.New(m.Fault)
	} else {
		err = s.files.Piece(from, m.Name, os.FileMode(m.Mode).Perm(), m.Data, m.End)
	}
	if err != nil {
		s.mu.Lock()
		s.broken[name] = true
		s.mu.Unlock()
		s.files.Fail(from, m.Name, err)
	}
}

// Folder is a Fetcher that writes files below a folder: SITE/NODE/NAME, or NAME only
// when it is Flat. A file appears when it is whole.
type Folder struct {
	Dir  string
	Flat bool

	mu     sync.Mutex // guards the fields below
	open   map[string]*os.File
	failed []error
	got    []string
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
	f.got = append(f.got, path)
	return nil
}

// path is where a file goes. A node may not name one outside.
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
	f.failed = append(f.failed, fmt.Errorf("%s of %s: %w", name, from, why))
	if path, err := f.path(from, name); err == nil && f.open[path] != nil {
		f.open[path].Close()
		os.Remove(path + ".part")
		delete(f.open, path)
	}
}

// Close removes what did not come whole, and returns the files that came, sorted, and
// what did not. Call it when the job is over.
func (f *Folder) Close() (got []string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for path, file := range f.open {
		file.Close()
		os.Remove(path + ".part")
		f.failed = append(f.failed, fmt.Errorf("%s did not come to its end", strings.TrimPrefix(path, f.Dir+string(filepath.Separator))))
	}
	f.open = nil
	slices.Sort(f.got)
	return f.got, errors.Join(f.failed...)
}

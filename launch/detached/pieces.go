package detached

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// A stream is kept in pieces of an eighth of its limit. Of a longer one, the first half of the limit
// and the last are kept: how a job began and how it ended is what is looked for. The piece that is
// written counts, so that the last part has between three pieces and four.
const (
	firstPieces = 4
	lastPieces  = 4
)

// MinLimit is the smallest limit of a stream.
const MinLimit = 1 << 20

// pieceName returns the name of the piece of a stream that begins at a byte of it.
func pieceName(stream string, offset int64) string { return fmt.Sprintf("%s.%d", stream, offset) }

// stream writes an output of a job to its folder.
type stream struct {
	dir, name string
	size      int64 // of a piece

	mu      sync.Mutex // guards the fields below
	file    *os.File   // the last piece; nil: none yet, or it is full
	written int64      // of the whole stream
}

// Write implements io.Writer. It begins a new piece whenever one is full, and removes the oldest one
// that is kept no longer.
func (s *stream) Write(p []byte) (n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n < len(p) {
		if s.written%s.size == 0 {
			if err := s.next(); err != nil {
				return n, err
			}
		}
		wrote, err := s.file.Write(p[n:min(int64(len(p)), int64(n)+s.size-s.written%s.size)])
		n += wrote
		s.written += int64(wrote)
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// next begins the piece at the end of the stream.
func (s *stream) next() error {
	if s.file != nil {
		if err := s.file.Close(); err != nil {
			return err
		}
	}
	// The one that is removed first leaves room for this one.
	if old := s.written - lastPieces*s.size; old >= firstPieces*s.size {
		if err := os.Remove(filepath.Join(s.dir, pieceName(s.name, old))); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	var err error
	s.file, err = os.OpenFile(filepath.Join(s.dir, pieceName(s.name, s.written)), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	return err
}

// follower reads a stream, as far as it is written.
type follower struct {
	dir, name string
	to        io.Writer
	missing   func(bytes int64) // called where pieces have been removed

	file  *os.File // the piece that is read; nil: none yet
	start int64    // its offset
	next  int64    // the first byte that was not read
}

// offsets returns where the pieces begin, in order.
func (f *follower) offsets() (all []int64, err error) {
	entries, err := os.ReadDir(f.dir)
	for _, e := range entries {
		if text, found := strings.CutPrefix(e.Name(), f.name+"."); found {
			if offset, err := strconv.ParseInt(text, 10, 64); err == nil && offset >= 0 {
				all = append(all, offset)
			}
		}
	}
	slices.Sort(all)
	return all, err
}

// read copies all that has been written and not been read yet.
func (f *follower) read() error {
	for {
		if err := f.copy(); err != nil {
			return err
		}
		all, err := f.offsets()
		if err != nil {
			return err
		}
		i := slices.IndexFunc(all, func(offset int64) bool { return f.file == nil || offset > f.start })
		if i < 0 {
			return nil
		}
		if err := f.copy(); err != nil { // what was added until the next piece was begun
			return err
		}
		if err := f.open(all[i]); err != nil && !errors.Is(err, fs.ErrNotExist) { // just removed: there is a later one
			return err
		}
	}
}

// copy copies the rest of the piece.
func (f *follower) copy() error {
	if f.file == nil {
		return nil
	}
	n, err := io.Copy(f.to, f.file)
	f.next += n
	return err
}

// open continues with the piece at an offset.
func (f *follower) open(offset int64) error {
	file, err := os.Open(filepath.Join(f.dir, pieceName(f.name, offset)))
	if err != nil {
		return err
	}
	f.close()
	if f.next < offset {
		f.missing(offset - f.next)
	}
	f.file, f.start, f.next = file, offset, offset
	return nil
}

// skip continues with what is written from now on.
func (f *follower) skip() error {
	for {
		all, err := f.offsets()
		if err != nil || len(all) == 0 {
			return err
		}
		f.next = all[len(all)-1] // what is before it is not missing
		err = f.open(f.next)
		if errors.Is(err, fs.ErrNotExist) { // removed since: there are later ones
			continue
		}
		if err != nil {
			return err
		}
		end, err := f.file.Seek(0, io.SeekEnd)
		f.next += end
		return err
	}
}

func (f *follower) close() {
	if f.file != nil {
		f.file.Close()
	}
}

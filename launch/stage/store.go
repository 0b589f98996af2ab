package stage

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// Errors of a store; its methods wrap them.
var (
	ErrMissing = errors.New("chunk is not in the store")
	ErrCorrupt = errors.New("content does not match its name")
	ErrFull    = errors.New("no room in the store")
)

// temporary is the prefix of the names of files being written.
const temporary = "tmp-"

// Store keeps chunks in a directory, each for the submitter who sent it: Of returns a submitter's
// part. It is safe for concurrent use.
type Store struct {
	dir   string
	limit int64

	mu     sync.Mutex // guards the fields below; held while files are written and read
	chunks map[key]*entry
	size   int64  // of all chunks
	clock  uint64 // counts uses

	write func(*os.File, []byte) error // replaced in tests, to simulate a full disk
}

// key names a submitter's chunk in the store, and its file: the SHA-256 of the submitter's name and
// the chunk's. What one submitter has sent is thus never there for another who names its sum.
type key Sum

// Share is the part of a store that belongs to one submitter.
type Share struct {
	*Store
	owner string
}

// Of returns a submitter's part of the store.
func (s *Store) Of(owner string) *Share { return &Share{s, owner} }

func (s *Share) key(sum Sum) key { return key(SumOf(append([]byte(s.owner+"\x00"), sum[:]...))) }

type entry struct {
	size int64
	used uint64 // value of clock; the lowest is removed first
	pins int
}

// Open opens the store in a directory, which it creates if needed, and which holds at most limit
// bytes of chunks. It removes partial files that a crash left. It does not verify the chunks; that
// is done when they are used.
func Open(dir string, limit int64) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("stage: %w", err)
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("stage: %w", err)
	}
	s := &Store{dir: dir, limit: limit, chunks: map[key]*entry{}, write: writeAll}
	type aged struct {
		key  key
		size int64
		used time.Time
	}
	var found []aged
	for _, f := range files {
		if strings.HasPrefix(f.Name(), temporary) {
			if err := os.Remove(filepath.Join(dir, f.Name())); err != nil {
				return nil, fmt.Errorf("stage: %w", err)
			}
			continue
		}
		name, ok := parseKey(f.Name())
		info, err := f.Info()
		if !ok || err != nil || !info.Mode().IsRegular() {
			continue // not a file of the store
		}
		found = append(found, aged{name, info.Size(), info.ModTime()})
	}
	slices.SortStableFunc(found, func(a, b aged) int { return a.used.Compare(b.used) })
	for _, f := range found {
		s.clock++
		s.chunks[f.key] = &entry{size: f.size, used: s.clock}
		s.size += f.size
	}
	return s, s.shrink(0)
}

func parseKey(name string) (k key, ok bool) {
	n, err := hex.Decode(k[:], []byte(name[:min(len(name), 2*len(k))]))
	return k, err == nil && n == len(k) && len(name) == 2*len(k)
}

func (s *Store) path(k key) string { return filepath.Join(s.dir, Sum(k).String()) }

// Size returns the size of all submitters' chunks in bytes.
func (s *Store) Size() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.size
}

// Missing returns the chunks of a file that the submitter has not in the store, without duplicates, in the order
// of the file.
func (s *Share) Missing(m Manifest) (sums []Sum) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := map[Sum]bool{}
	for _, sum := range m.Chunks {
		if s.chunks[s.key(sum)] == nil && !seen[sum] {
			sums = append(sums, sum)
		}
		seen[sum] = true
	}
	return sums
}

// Put stores a chunk under the name sum. Content that does not match sum is ErrCorrupt. If there is
// no room, below the limit or on the disk, chunks that are not pinned are removed; if that is not
// enough, the error is ErrFull.
func (s *Share) Put(sum Sum, chunk []byte) error {
	if len(chunk) == 0 || len(chunk) > ChunkSize || SumOf(chunk) != sum {
		return fmt.Errorf("stage: chunk %v, %d bytes: %w; have it sent again", sum, len(chunk), ErrCorrupt)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := s.key(sum)
	if e := s.chunks[key]; e != nil {
		s.use(key, e)
		return nil
	}
	if err := s.shrink(int64(len(chunk))); err != nil {
		return err
	}
	err := s.create(s.path(key), 0o600, func(f *os.File) error { return s.write(f, chunk) })
	// The disk may be full of other files. Remove own chunks and try once more.
	if err != nil && s.evict(int64(len(chunk))) {
		err = s.create(s.path(key), 0o600, func(f *os.File) error { return s.write(f, chunk) })
	}
	if err != nil {
		return fmt.Errorf("stage: chunk %v: %w: %w", sum, ErrFull, err)
	}
	s.clock++
	s.chunks[key] = &entry{size: int64(len(chunk)), used: s.clock}
	s.size += int64(len(chunk))
	return nil
}

// Get returns a chunk, or ErrMissing. A chunk that was corrupted on disk is removed and counts as
// missing.
func (s *Share) Get(sum Sum) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.get(sum)
}

func (s *Share) get(sum Sum) ([]byte, error) {
	key := s.key(sum)
	e := s.chunks[key]
	if e == nil {
		return nil, fmt.Errorf("stage: chunk %v: %w", sum, ErrMissing)
	}
	chunk, err := readChunk(s.path(key))
	if err != nil || SumOf(chunk) != sum {
		s.remove(key)
		return nil, fmt.Errorf("stage: chunk %v was spoilt on the disk and is removed: %w", sum, ErrMissing)
	}
	s.use(key, e)
	return chunk, nil
}

// Pin protects the chunks of a file that are present now from removal, until release is called.
// Chunks that arrive later need another Pin.
func (s *Share) Pin(m Manifest) (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var pinned []*entry
	for _, sum := range m.Chunks {
		if e := s.chunks[s.key(sum)]; e != nil {
			e.pins++
			pinned = append(pinned, e)
		}
	}
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, e := range pinned {
			e.pins--
		}
	})
}

// Each calls f with the chunks of a file, in order, each verified. If chunks are missing or
// corrupted, the error is ErrMissing, and Missing returns them. An error of f ends the iteration.
func (s *Share) Each(m Manifest, f func(chunk []byte) error) error {
	if err := m.Check(); err != nil {
		return err
	}
	for i, sum := range m.Chunks {
		chunk, err := s.Get(sum)
		if err != nil {
			return err
		}
		if int64(len(chunk)) != m.chunk(i) {
			return fmt.Errorf("stage: chunk %d has %d bytes, and the manifest wants %d: %w", i, len(chunk), m.chunk(i), ErrCorrupt)
		}
		if err := f(chunk); err != nil {
			return err
		}
	}
	return nil
}

// use records that a chunk was used, now and for after a restart. A failure of the latter is
// harmless.
func (s *Store) use(key key, e *entry) {
	s.clock++
	e.used = s.clock
	now := time.Now()
	_ = os.Chtimes(s.path(key), now, now)
}

// shrink makes room for n more bytes below the limit.
func (s *Store) shrink(n int64) error {
	if over := s.size + n - s.limit; over > 0 && !s.evict(over) {
		return fmt.Errorf("stage: %s: %w: %d of %d bytes are in use, %d more are wanted; raise the limit or wait for jobs to end", s.dir, ErrFull, s.size, s.limit, n)
	}
	return nil
}

// evict removes at least n bytes of chunks that are not pinned, the least recently used first. It
// reports whether there were that many; if there were not, it removes none.
func (s *Store) evict(n int64) bool {
	type aged struct {
		key key
		*entry
	}
	var loose []aged
	for key, e := range s.chunks {
		if e.pins == 0 {
			loose = append(loose, aged{key, e})
		}
	}
	slices.SortStableFunc(loose, func(a, b aged) int { return cmp.Compare(a.used, b.used) })
	enough := 0
	for ; n > 0 && enough < len(loose); enough++ {
		n -= loose[enough].size
	}
	if n > 0 {
		return false
	}
	for _, a := range loose[:enough] {
		s.remove(a.key)
	}
	return true
}

// remove forgets a chunk. If its file cannot be deleted, the next Open finds it.
func (s *Store) remove(key key) {
	s.size -= s.chunks[key].size
	delete(s.chunks, key)
	_ = os.Remove(s.path(key))
}

// create writes a file under another name beside it, and renames it when it is complete and synced.
func (s *Store) create(path string, mode os.FileMode, fill func(*os.File) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), temporary)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	err = fill(f)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync()
	}
	if closing := f.Close(); err == nil {
		err = closing
	}
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

func writeAll(f *os.File, b []byte) error {
	_, err := f.Write(b)
	return err
}

// readChunk reads a chunk's file; of a file that is too long, enough to detect that.
func readChunk(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, ChunkSize+1))
}

package stage

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"
)

// file returns content of a size that no other seed has, and its manifest.
func file(t *testing.T, size int, seed uint64) ([]byte, Manifest) {
	t.Helper()
	content := make([]byte, size)
	rng := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	rng.Read(content)
	m, err := Describe(iotest.HalfReader(bytes.NewReader(content)))
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Check(); err != nil {
		t.Fatal(err)
	}
	return content, m
}

func open(t *testing.T, dir string, limit int64) *Share {
	t.Helper()
	s, err := Open(dir, limit)
	if err != nil {
		t.Fatal(err)
	}
	return s.Of("alice@a/n1")
}

// fetch puts the missing chunks of a file, and returns how many there were.
func fetch(t *testing.T, s *Share, content []byte, m Manifest) int {
	t.Helper()
	missing := s.Missing(m)
	for _, sum := range missing {
		i := slices.Index(m.Chunks, sum)
		if err := s.Put(sum, content[i*ChunkSize:][:m.chunk(i)]); err != nil {
			t.Fatal(err)
		}
	}
	return len(missing)
}

func same(t *testing.T, path string, content []byte) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(got, content) {
		t.Errorf("%s: %d bytes, %v; want %d", path, len(got), err, len(content))
	}
}

// assemble writes a file of the store.
func assemble(s *Share, m Manifest, path string, mode os.FileMode) error {
	var content []byte
	err := s.Each(m, func(chunk []byte) error {
		content = append(content, chunk...)
		return nil
	})
	if err != nil {
		return err
	}
	return os.WriteFile(path, content, mode)
}

func TestFiles(t *testing.T) {
	for _, size := range []int{0, 1, ChunkSize - 1, ChunkSize, ChunkSize + 1, 3*ChunkSize + 5} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			dir, out := t.TempDir(), filepath.Join(t.TempDir(), "prog")
			content, m := file(t, size, 1)
			s := open(t, dir, 10*ChunkSize)
			if n := fetch(t, s, content, m); n != len(m.Chunks) {
				t.Errorf("%d chunks were missing of %d", n, len(m.Chunks))
			}
			for range 2 { // also over an existing file
				if err := assemble(s, m, out, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			same(t, out, content)
			if info, err := os.Stat(out); err != nil || info.Mode().Perm() != 0o755 {
				t.Errorf("%v, %v", info, err)
			}
			// A second run transfers nothing, nor does one after a restart.
			if n := fetch(t, open(t, dir, 10*ChunkSize), content, m); n != 0 {
				t.Errorf("a second run moved %d chunks", n)
			}
		})
	}
}

// Equal chunks are stored and requested once; chunks sent before a crash are not sent again, and
// partial files are removed.
func TestResume(t *testing.T) {
	dir := t.TempDir()
	content, _ := file(t, 4*ChunkSize, 2)
	copy(content[ChunkSize:], content[:ChunkSize])
	m, err := Describe(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, dir, 10*ChunkSize)
	if n := len(s.Missing(m)); n != 3 {
		t.Fatalf("%d chunks missing, want 3", n)
	}
	if err := s.Put(m.Chunks[0], content[:ChunkSize]); err != nil {
		t.Fatal(err)
	}
	if err := assemble(s, m, filepath.Join(dir, "out"), 0o600); !errors.Is(err, ErrMissing) {
		t.Errorf("assembled of one chunk: %v", err)
	}
	for name, text := range map[string]string{temporary + "123": "half", "README": "not ours", strings.Repeat("zz", 32): "nor this"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s = open(t, dir, 10*ChunkSize)
	if n := fetch(t, s, content, m); n != 2 || s.Size() != 3*ChunkSize {
		t.Errorf("%d chunks were missing, want 2; size %d", n, s.Size())
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 5 { // three chunks, and the foreign files
		t.Errorf("%v, %v", files, err)
	}
}

func TestCorruption(t *testing.T) {
	dir := t.TempDir()
	content, m := file(t, 2*ChunkSize+9, 3)
	s := open(t, dir, 10*ChunkSize)
	for _, bad := range [][]byte{content[1 : ChunkSize+1], content[:ChunkSize-1], nil, content} {
		if err := s.Put(m.Chunks[0], bad); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%d wrong bytes: %v", len(bad), err)
		}
	}
	fetch(t, s, content, m)
	for name, spoil := range map[string]func(path string) error{
		"flipped": func(path string) error {
			return os.WriteFile(path, append([]byte{content[0] ^ 1}, content[1:ChunkSize]...), 0o600)
		},
		"cut":    func(path string) error { return os.Truncate(path, 100) },
		"longer": func(path string) error { return os.Truncate(path, 100*ChunkSize) },
		"gone":   os.Remove,
	} {
		if err := spoil(s.path(s.key(m.Chunks[0]))); err != nil {
			t.Fatal(err)
		}
		out := filepath.Join(t.TempDir(), "out")
		if err := assemble(s, m, out, 0o600); !errors.Is(err, ErrMissing) {
			t.Errorf("%s: %v", name, err)
		}
		if files, err := os.ReadDir(filepath.Dir(out)); err != nil || len(files) > 0 {
			t.Errorf("%s: %v, %v", name, files, err)
		}
		if n := fetch(t, s, content, m); n != 1 {
			t.Errorf("%s: %d chunks were missing, want 1", name, n)
		}
		if err := assemble(s, m, out, 0o600); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		same(t, out, content)
	}
	// A manifest with wrong sizes.
	lie := Manifest{Size: ChunkSize + 9, Chunks: []Sum{m.Chunks[2], m.Chunks[0]}}
	if err := assemble(s, lie, filepath.Join(dir, "lie"), 0o600); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a lie: %v", err)
	}
	for _, m := range []Manifest{{Size: -1}, {Size: 1}, {Size: MaxFile + 1}, {Chunks: m.Chunks}} {
		if err := assemble(s, m, filepath.Join(dir, "lie"), 0o600); err == nil {
			t.Errorf("%d bytes in %d chunks: assembled", m.Size, len(m.Chunks))
		}
	}
}

// The least recently used chunks are removed first, also after a restart, and never pinned ones.
func TestEviction(t *testing.T) {
	dir := t.TempDir()
	content, m := file(t, 6*ChunkSize, 4)
	s := open(t, dir, 3*ChunkSize)
	put := func(i int) error { return s.Put(m.Chunks[i], content[i*ChunkSize:][:ChunkSize]) }
	has := func() (list []int) {
		for i, sum := range m.Chunks {
			if !slices.Contains(s.Missing(m), sum) {
				list = append(list, i)
			}
		}
		return list
	}
	for i := range 3 {
		if err := put(i); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Get(m.Chunks[0]); err != nil {
		t.Fatal(err)
	}
	if err := put(3); err != nil || !slices.Equal(has(), []int{0, 2, 3}) {
		t.Errorf("%v, %v", has(), err)
	}
	release := s.Pin(Manifest{Chunks: m.Chunks[2:4]})
	if err := put(4); err != nil || !slices.Equal(has(), []int{2, 3, 4}) {
		t.Errorf("%v, %v", has(), err)
	}
	releaseAll := s.Pin(m)
	if err := put(5); !errors.Is(err, ErrFull) || !slices.Equal(has(), []int{2, 3, 4}) || s.Size() != 3*ChunkSize {
		t.Errorf("%v, %v, size %d", has(), err, s.Size())
	}
	releaseAll()
	releaseAll() // has no effect on the pins of others
	if err := put(5); err != nil || !slices.Equal(has(), []int{2, 3, 5}) {
		t.Errorf("%v, %v", has(), err)
	}
	release()
	for i, age := range []time.Duration{2: time.Hour, 3: 3 * time.Hour, 5: 2 * time.Hour} {
		if at := time.Unix(1e9, 0).Add(-age); age > 0 {
			if err := os.Chtimes(s.path(s.key(m.Chunks[i])), at, at); err != nil {
				t.Fatal(err)
			}
		}
	}
	if s = open(t, dir, 2*ChunkSize); !slices.Equal(has(), []int{2, 5}) {
		t.Errorf("a smaller store has %v", has())
	}
}

// On a full disk, chunks make room; when that is not enough, no partial file remains and the store
// continues.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	content, m := file(t, 4*ChunkSize, 5)
	s := open(t, dir, 10*ChunkSize)
	fetch(t, s, content[:2*ChunkSize], Manifest{Size: 2 * ChunkSize, Chunks: m.Chunks[:2]})
	disk := 2 // chunks that fit
	s.write = func(f *os.File, b []byte) error {
		if len(s.chunks) >= disk {
			_ = writeAll(f, b[:100])
			return syscall.ENOSPC
		}
		return writeAll(f, b)
	}
	if err := s.Put(m.Chunks[2], content[2*ChunkSize:][:ChunkSize]); err != nil {
		t.Fatal(err)
	}
	if n := len(s.Missing(m)); n != 2 {
		t.Errorf("%d chunks missing, want 2", n)
	}
	disk = 0
	release := s.Pin(m)
	err := s.Put(m.Chunks[3], content[3*ChunkSize:])
	if !errors.Is(err, ErrFull) || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("%v", err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 2 {
		t.Errorf("%v, %v", files, err)
	}
	release()
	disk = 9
	if fetch(t, s, content, m); len(s.Missing(m)) > 0 {
		t.Errorf("missing: %v", s.Missing(m))
	}
}

// What one submitter has sent is not there for another, who knows its sums and not its content; also not after a
// restart. Who sends the content has it.
func TestChunksOfOthers(t *testing.T) {
	dir := t.TempDir()
	content, m := file(t, 2*ChunkSize, 6)
	alice := open(t, dir, 10*ChunkSize)
	fetch(t, alice, content, m)
	for range 2 {
		other := alice.Of("alice@a/n2")
		if n := len(other.Missing(m)); n != 2 {
			t.Errorf("of %d chunks that somebody else sent, %d are missing", len(m.Chunks), n)
		}
		if err := assemble(other, m, filepath.Join(t.TempDir(), "out"), 0o600); !errors.Is(err, ErrMissing) {
			t.Errorf("the file of another is assembled: %v", err)
		}
		alice = open(t, dir, 10*ChunkSize)
	}
	other := alice.Of("alice@a/n2")
	if err := other.Put(m.Chunks[0], content[ChunkSize:]); !errors.Is(err, ErrCorrupt) {
		t.Errorf("other content: %v", err)
	}
	if n := fetch(t, other, content, m); n != 2 || len(other.Missing(m)) > 0 || len(alice.Missing(m)) > 0 {
		t.Errorf("%d chunks were missing", n)
	}
}

func TestDescribeFails(t *testing.T) {
	if _, err := Describe(iotest.ErrReader(io.ErrClosedPipe)); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("%v", err)
	}
	if _, err := Open(filepath.Join("/dev/null", "x"), 1); err == nil {
		t.Error("a store within a file")
	}
}

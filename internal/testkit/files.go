package testkit

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"flag"
	"io"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the files that tests compare with instead of comparing them")

// Updating reports whether tests are to write what they compare with.
func Updating() bool { return *update }

// Golden compares a text with a file. With -update it writes the file.
func Golden(t testing.TB, file, got string) {
	t.Helper()
	if Updating() {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s\nlook at the difference after: go test -run '^%s$' -update", file, got, want, t.Name())
	}
}

// ShortDir is t.TempDir with a path that leaves room for a socket's name.
func ShortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "isl")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// Unpack returns the texts of a compressed archive by name, without the folder that they are in. They must
// belong to nobody.
func Unpack(t testing.TB, packed io.Reader) map[string]string {
	t.Helper()
	z, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return texts
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if h.Uname+h.Gname != "" || h.Uid != 0 || h.Gid != 0 {
			t.Errorf("%s belongs to %v", h.Name, h)
		}
		_, name, _ := strings.Cut(h.Name, "/")
		texts[name] = string(text)
	}
}

// Descriptors returns how many this process has open.
func Descriptors(t testing.TB) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

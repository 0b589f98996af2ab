package jobkey

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/overlay"
)

func TestIdentity(t *testing.T) {
	k, err := New("my-run")
	if err != nil {
		t.Fatal(err)
	}
	if err := overlay.CheckJobID(k.ID()); err != nil {
		t.Fatal(err)
	}
	back, err := Parse(k.String() + "\n")
	if err != nil || back != k {
		t.Fatalf("Parse(String()) = %v, %v", back, err)
	}
	if !k.Auth().Public().Owns(k.ID()) {
		t.Error("the key does not own its own job")
	}
	other, _ := New("my-run")
	if other.Auth().Public().Owns(k.ID()) || other.ID() == k.ID() || other.Links() == k.Links() {
		t.Error("a second job of the same name is taken for the first")
	}
	renamed := k
	renamed.Name = "your-run"
	if renamed.Auth().Public().Owns(k.ID()) {
		t.Error("the name is not bound to the secret")
	}
	if ForLinks(k.Auth()) == k.Links() {
		t.Error("one of the keys is the other")
	}
}

// A fixed vector keeps ids and keys of different builds compatible.
func TestVector(t *testing.T) {
	k, err := Parse("demo:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := k.ID(), overlay.JobID("demo-b1ff58fb79be2917748544788204ea43"); got != want {
		t.Errorf("id = %s, want %s", got, want)
	}
}

func TestBadKeys(t *testing.T) {
	for in, fault := range map[string]string{
		"":             "want NAME:SECRET",
		"demo":         "want NAME:SECRET",
		"De:AAAA":      "allowed are",
		"demo:AAAA":    "was the line cut?",
		"demo:sec ret": "was the line cut?",
	} {
		_, err := Parse(in)
		if err == nil || !strings.Contains(err.Error(), fault) || strings.Contains(err.Error(), "sec ret") {
			t.Errorf("Parse(%q) = %v, want %q", in, err, fault)
		}
	}
}

func TestLoad(t *testing.T) {
	k, _ := New("demo")
	file := filepath.Join(t.TempDir(), "job.key")
	if err := os.WriteFile(file, []byte(k.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if back, err := Load(file); err != nil || back != k {
		t.Fatalf("Load = %v, %v", back, err)
	}
	if err := os.Chmod(file, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(file); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a key that the group can read was taken: %v", err)
	}
	if _, err := Load(file + "x"); err == nil {
		t.Error("a missing file was taken")
	}
}

// A text is a key that is written as it was read, or an error.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"demo:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8\n", "demo:", ":", "", "demo:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh9", "d\xe9:AA", "demo:AAECAwQFBgcICQoLDA0O\r\nDxAREhMUFRYXGBkaGxwdHh8"} {
		f.Add(s)
	}
	lines := strings.NewReplacer("\r", "", "\n", "") // base64 may be in several
	f.Fuzz(func(t *testing.T, s string) {
		k, err := Parse(s)
		if err == nil && k.String() != lines.Replace(strings.TrimSpace(s)) {
			t.Errorf("%q is written as %q", s, k)
		}
	})
}

package contexts

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/isthmus-grid/isthmus/internal/pki/ca"
)

func filesOf(t *testing.T, text string) ca.Files {
	t.Helper()
	dir := t.TempDir()
	f := ca.Files{Cert: filepath.Join(dir, "c"), Key: filepath.Join(dir, "k"), CA: filepath.Join(dir, "a")}
	for _, name := range []string{f.Cert, f.Key, f.CA} {
		if err := os.WriteFile(name, []byte(text+filepath.Base(name)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

func TestContexts(t *testing.T) {
	root := filepath.Join(t.TempDir(), "contexts")
	if _, err := Load(root, ""); !errors.Is(err, ErrNone) {
		t.Errorf("before the first: %v", err)
	}
	if all, err := List(root); len(all) > 0 || err != nil {
		t.Errorf("before the first: %v, %v", all, err)
	}
	for _, name := range []string{"one", "two"} {
		if _, err := Save(root, name, name+":443", filesOf(t, name)); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Load(root, "")
	if err != nil || got.Name != "two" || got.Broker != "two:443" {
		t.Errorf("the one saved last: %+v, %v", got, err)
	}
	for file, want := range map[string]string{got.Files.Cert: "twoc", got.Files.Key: "twok", got.Files.CA: "twoa"} {
		text, err := os.ReadFile(file)
		info, _ := os.Stat(file)
		if string(text) != want || err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %q, %v, %v; want %q", file, text, info.Mode(), err, want)
		}
	}
	if err := Select(root, "one"); err != nil {
		t.Error(err)
	}
	if got, err := Load(root, ""); err != nil || got.Broker != "one:443" {
		t.Errorf("after selecting one: %+v, %v", got, err)
	}
	if all, err := List(root); len(all) != 2 || all[0].Name != "one" || all[1].Name != "two" || err != nil {
		t.Errorf("%+v, %v", all, err)
	}
	if err := Remove(root, "one"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(root, "one")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its folder is there after it was removed: %v", err)
	}
	if _, err := Load(root, ""); !errors.Is(err, ErrNone) {
		t.Errorf("the selected one was removed: %v", err)
	}
	if err := Select(root, "one"); !errors.Is(err, ErrNone) {
		t.Errorf("selected what was removed: %v", err)
	}
	if got, err := Load(root, "two"); err != nil || got.Broker != "two:443" {
		t.Errorf("the other one: %+v, %v", got, err)
	}
}

func TestNames(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{"", ".", "..", "a/b", "../x", "current", ".x", "a b"} {
		if _, err := Save(root, name, "b:1", filesOf(t, "x")); err == nil {
			t.Errorf("saved %q", name)
		}
		if _, err := Load(root, name); err == nil {
			t.Errorf("loaded %q", name)
		}
	}
}

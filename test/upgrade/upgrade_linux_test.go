//go:build system

package upgrade

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/lab"
	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// Daemons of this version and of the previous one work together, whichever end of a session is
// older: so a grid can be upgraded daemon by daemon.
func TestDaemonsOfTwoVersions(t *testing.T) {
	t.Parallel() // most of it is waiting
	labtest.NeedLab(t)
	before := previous(t)
	for _, old := range [][]string{{"broker", "helper"}, {"frontal", "proxy"}} {
		t.Run("old "+strings.Join(old, " and "), func(t *testing.T) {
			now := filepath.Join(labtest.Programs(t), "isthmus-")
			w := labtest.NewWorld(t, labtest.SiteOpen+labtest.SiteClosed+labtest.SiteShut, grid.Config{Binary: func(daemon string) []string {
				if slices.Contains(old, daemon) {
					return []string{before + daemon}
				}
				return []string{now + daemon}
			}})
			for _, way := range labtest.Ways {
				if strings.HasPrefix(way.To, "range/") || strings.HasPrefix(way.From, "hidden/") {
					continue // sites that are not here
				}
				j := w.LinkPair(way.From, way.To)
				if got := labtest.PathOf(j.Near); got != way.Path {
					t.Errorf("%s to %s by %s, want %s", way.From, way.To, got, way.Path)
				}
				j.End(t)
			}
		})
	}
}

// previous builds the daemons of the previous version: at the last tag below the current commit or,
// without tags, at its parent. It returns the prefix of their paths.
func previous(t *testing.T) string {
	t.Helper()
	commit, err := git("rev-parse", "--verify", "--quiet", "HEAD~1^{commit}")
	if err != nil {
		t.Skipf("there is no commit before this one here: clone with its history, or at least with --depth=2 (%v)", err)
	}
	if tag, err := git("describe", "--tags", "--abbrev=0", commit); err == nil {
		commit = tag
	}
	// Nothing was released before the calls and settings had these names: nobody upgrades from such a version.
	if _, err := git("cat-file", "-e", commit+":launch/nodeservice/nodepb/node.proto"); err != nil {
		t.Skipf("%.12s is before the first version that others can be upgraded from: its calls and settings have other names", commit)
	}
	// Its path is the same in every lab, so that what is compiled there once is found in the cache.
	dir := filepath.Join(lab.Dir(), "previous")
	t.Cleanup(func() { os.RemoveAll(dir) })
	source, err := git("archive", "--format=tar", commit)
	if err == nil {
		err = unpack(dir, source)
	}
	if err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-buildvcs=false", "-ldflags=-s -w", "-o", "before/",
		"./cmd/isthmus-broker", "./cmd/isthmus-frontal", "./cmd/isthmus-proxy", "./cmd/isthmus-helper")
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building %.12s: %v\n%s", commit, err, out)
	}
	t.Logf("the version before is that of %.12s", commit)
	return filepath.Join(dir, "before", "isthmus-")
}

// git runs the command at the root of the module and returns what it prints.
func git(args ...string) (string, error) {
	// The lab's root is not always the owner of the files.
	cmd := exec.Command("git", append([]string{"-c", "safe.directory=*"}, args...)...)
	cmd.Dir = labtest.Root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, stderr.Bytes())
	}
	if args[0] == "archive" {
		return string(out), nil
	}
	return strings.TrimSpace(string(out)), nil
}

// unpack writes the files of an archive below dir.
func unpack(dir, archive string) error {
	for r := tar.NewReader(strings.NewReader(archive)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if h.Typeflag != tar.TypeReg || !filepath.IsLocal(h.Name) {
			continue
		}
		name := filepath.Join(dir, h.Name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		text, err := io.ReadAll(r)
		if err == nil {
			err = os.WriteFile(name, text, 0o644)
		}
		if err != nil {
			return err
		}
	}
}

package jobagent

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/isthmus-grid/isthmus/internal/job/ranks"
)

var resources = map[string]int{
	"as": unix.RLIMIT_AS, "core": unix.RLIMIT_CORE, "cpu": unix.RLIMIT_CPU, "data": unix.RLIMIT_DATA, "fsize": unix.RLIMIT_FSIZE,
	"memlock": unix.RLIMIT_MEMLOCK, "nofile": unix.RLIMIT_NOFILE, "nproc": unix.RLIMIT_NPROC, "stack": unix.RLIMIT_STACK,
}

// startLimited starts a process with its limits. They are set from outside before the program runs:
// a shell waits for a line on descriptor 3 and then executes the program.
func startLimited(ctx context.Context, s ranks.Spec, limits []limit) (*ranks.Process, error) {
	if len(limits) == 0 {
		return ranks.Start(ctx, s)
	}
	program, err := lookUp(s.Argv[0], s.Dir)
	if err != nil {
		return nil, err
	}
	theirs, ours, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer ours.Close()
	s.Argv = append([]string{"/bin/sh", "-c", `read -r go <&3 && exec 3<&- && exec "$@"`, "sh", program}, s.Argv[1:]...)
	s.Extra = []*os.File{theirs}
	p, err := ranks.Start(ctx, s)
	theirs.Close()
	if err != nil {
		return nil, err
	}
	for _, l := range limits {
		rlimit := unix.Rlimit{Cur: l.value, Max: l.value}
		if err := unix.Prlimit(p.PID(), l.resource, &rlimit, nil); err != nil {
			ours.Close() // the shell exits without the line
			p.Wait()
			return nil, fmt.Errorf("limit %s of %d: %w", l.name, l.value, err)
		}
	}
	if _, err := ours.WriteString("go\n"); err != nil {
		p.Wait()
		return nil, err
	}
	return p, nil
}

// lookUp finds a program as exec.Cmd would, so that a missing program fails with the usual error
// and not with the shell's.
func lookUp(name, dir string) (string, error) {
	if !strings.Contains(name, "/") {
		return exec.LookPath(name)
	}
	path := name
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return "", err
	case info.IsDir() || info.Mode()&0o111 == 0:
		return "", &os.PathError{Op: "exec", Path: path, Err: unix.EACCES}
	}
	return path, nil
}

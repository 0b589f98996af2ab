package ranks

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// StartStatus is the exit status for a program that could not be started, as in shells: 127 if there is
// no such program, or not what it needs to run, and otherwise 126.
func StartStatus(err error) int {
	for _, missing := range []error{fs.ErrNotExist, exec.ErrNotFound, syscall.ENOTDIR, syscall.ELOOP, syscall.ENAMETOOLONG} {
		if errors.Is(err, missing) {
			return 127
		}
	}
	return 126
}

// explained adds to the error of a start what the kernel's leaves out: what it is that does not exist,
// where the program does, and why the system cannot run it.
func explained(err error, cmd *exec.Cmd) error {
	path := cmd.Path
	if !filepath.IsAbs(path) {
		path = filepath.Join(cmd.Dir, path)
	}
	switch {
	case errors.Is(err, syscall.ENOEXEC):
		return fmt.Errorf("%w: it is a program for another kind of system or processor, or a script that does not begin with #! and the program that runs it", err)
	case !errors.Is(err, syscall.ENOENT) || !strings.Contains(cmd.Path, "/"):
		return err
	case !isThere(path):
		return err
	}
	if interpreter := interpreterOf(path); interpreter != "" {
		return fmt.Errorf("%w: the program that is to run it, %s, is not there", err, interpreter)
	}
	return fmt.Errorf("%w: it is there, but the loader that it names is not", err)
}

func isThere(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// interpreterOf returns the program that the first line of a script names, "" if it names none.
func interpreterOf(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	line, _ := bufio.NewReaderSize(f, 256).ReadSlice('\n') // the kernel reads no more of it
	text, is := strings.CutPrefix(string(line), "#!")
	if !is {
		return ""
	}
	words := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" \t\n", r) }) // as the kernel has it
	if len(words) > 0 {
		return fmt.Sprintf("%q", words[0]) // a carriage return may be the reason
	}
	return ""
}

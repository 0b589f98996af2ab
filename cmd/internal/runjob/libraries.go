package runjob

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/isthmus-grid/isthmus/cmd/internal/cmdline"
	"github.com/isthmus-grid/isthmus/internal/job/cprogram"
	"github.com/isthmus-grid/isthmus/launch/submit"
)

// stageLibraries returns the files of the MPI library that a program is linked with, and has the loader
// find them in the job's folder, in which processes begin; none for a program that needs none.
func stageLibraries(j *submit.Job, program string) ([]submit.File, error) {
	names, folder, err := librariesOf(program)
	if err != nil || len(names) == 0 {
		return nil, err
	}
	for i, name := range names {
		names[i] = filepath.Join(folder, "lib", name)
	}
	j.Env = append(j.Env, cprogram.With(".", j.Env))
	return submit.Collect(names)
}

// hereWithLibraries returns the environment in which a program finds the MPI library that it is linked
// with on this host, besides env.
func hereWithLibraries(program string, env []string) ([]string, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return env, nil // the start says it better
	}
	names, folder, err := librariesOf(path)
	if err != nil || len(names) == 0 {
		return env, err
	}
	return append(env, cprogram.With(filepath.Join(folder, "lib"), os.Environ())), nil
}

// librariesOf returns the libraries that a program is linked with, and the folder that has them; no names
// for a program that needs none.
func librariesOf(program string) (names []string, folder string, err error) {
	next := "isthmus cc --help"
	if names, err = cprogram.Libraries(program); err == nil && len(names) > 0 {
		if folder, err = cprogram.Folder(); err != nil {
			err, next = fmt.Errorf("%s is linked with %s: %w", program, names[len(names)-1], err), cprogram.Next
		}
	}
	if err != nil {
		return nil, "", &cmdline.Failure{Cause: "run: " + err.Error(), Err: err, Next: next}
	}
	return names, folder, nil
}

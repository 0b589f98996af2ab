// Package compile has "isthmus cc", "isthmus cxx" and "isthmus fc". It keeps no state.
package compile

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/cmd/internal/cmdline"
	"github.com/isthmus-grid/isthmus/internal/job/cprogram"
)

// A compiler is what isthmus cc, cxx or fc runs.
type compiler struct {
	command, language string
	variable          string // of the environment that names another
	program           string
	finds             string // what its arguments find besides the library
	libraries         []string
	suffix            string // of a program's source
	note              string // of the description
}

var compilers = []compiler{
	{"cc", "C", "CC", "cc", "mpi.h", []string{"-lmpi_abi"}, "c", ""},
	{"cxx", "C++", "CXX", "c++", "mpi.h", []string{"-lmpi_abi"}, "cc", ""},
	{"fc", "Fortran", "FC", "gfortran", "mpif.h, the modules mpi and mpi_f08,", []string{"-lmpi_abi_fortran", "-lmpi_abi"}, "f90",
		" It compiles the modules when a compiler is used for the first time, and keeps them in the user's cache."},
}

// Commands are "isthmus cc" and its like.
func Commands() (all []*cli.Command) {
	for _, k := range compilers {
		all = append(all, &cli.Command{
			Name:      k.command,
			Usage:     "compile or link an MPI program in " + k.language,
			ArgsUsage: "[--show] ARGUMENT...",
			Description: "It runs " + k.program + ", or what " + k.variable + " names, with the arguments and what finds " + k.finds + " and the library of the standard ABI:\n\n" +
				"  isthmus " + k.command + " -O2 -o program program." + k.suffix + "\n" +
				"  isthmus run -n 4 ./program\n\n" +
				"--show prints that command, and compiles nothing. The libraries are those of the package isthmus-mpi, or in the folder that " + cprogram.Env + " names." + k.note,
			SkipFlagParsing: true,
			Action: func(c *cli.Context) error {
				words := c.Args().Slice()
				if len(words) == 1 && (words[0] == "--help" || words[0] == "-h") {
					return cli.ShowSubcommandHelp(c)
				}
				return k.run(c, words)
			},
		})
	}
	return all
}

func (k compiler) run(c *cli.Context, words []string) error {
	if len(words) == 0 {
		return cmdline.Usage(k.command + ": want " + c.Command.ArgsUsage)
	}
	folder, err := cprogram.Folder()
	if err != nil {
		return &cmdline.Failure{Cause: fmt.Sprintf("%s: %v", k.command, err), Err: err, Next: cprogram.Next}
	}
	argv := strings.Fields(cmp.Or(os.Getenv(k.variable), k.program))
	show := words[0] == "--show"
	if show {
		words = words[1:]
	}
	path, err := exec.LookPath(argv[0])
	if errors.Is(err, exec.ErrNotFound) && !show {
		return &cmdline.Failure{Cause: fmt.Sprintf("%s: there is no %s here", k.command, argv[0]), Err: err, Next: "apt-get install gcc g++ gfortran, or name a compiler in " + k.variable}
	}
	if err != nil && !show {
		return fmt.Errorf("%s: %w", k.command, err)
	}
	arguments := k.withLibrary(words, folder)
	if k.command == "fc" {
		m, err := modulesOf(argv, filepath.Join(folder, "include"))
		if err == nil && !show {
			err = m.compile(c.Context)
		}
		if err != nil {
			return &cmdline.Failure{Cause: "fc: " + err.Error(), Err: err, Next: "name a Fortran compiler in FC, and a folder for what it compiles in XDG_CACHE_HOME"}
		}
		arguments = m.with(arguments)
	}
	argv = append(argv, arguments...)
	if show {
		fmt.Fprintln(c.App.Writer, strings.Join(argv, " "))
		return nil
	}
	return fmt.Errorf("%s: %s: %w", k.command, path, syscall.Exec(path, argv, os.Environ()))
}

// withLibrary returns a compiler's arguments with those that find the header, and the library unless
// nothing is linked. The program finds the library where it is now; isthmus run says otherwise where that is
// needed.
func (k compiler) withLibrary(words []string, folder string) []string {
	all := append([]string{"-I" + filepath.Join(folder, "include")}, words...)
	if !isLinked(words) {
		return all
	}
	lib := filepath.Join(folder, "lib")
	return append(append(all, "-L"+lib, "-Wl,-rpath,"+lib, "-Wl,--enable-new-dtags"), k.libraries...)
}

// isLinked reports whether a compiler with these arguments links what it compiles.
func isLinked(words []string) bool {
	return !slices.ContainsFunc(words, func(w string) bool {
		return slices.Contains([]string{"-c", "-E", "-S", "-M", "-MM", "-fsyntax-only"}, w)
	})
}

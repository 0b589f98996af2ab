// Package compile has "isthmus cc" and "isthmus cxx". It keeps no state.
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

// A compiler is what isthmus cc, or cxx, runs.
type compiler struct {
	command, language string
	variable          string // of the environment that names another
	program           string
}

var compilers = []compiler{{"cc", "C", "CC", "cc"}, {"cxx", "C++", "CXX", "c++"}}

// Commands are "isthmus cc" and its like.
func Commands() (all []*cli.Command) {
	for _, k := range compilers {
		all = append(all, &cli.Command{
			Name:      k.command,
			Usage:     "compile or link an MPI program in " + k.language,
			ArgsUsage: "[--show] ARGUMENT...",
			Description: "It runs " + k.program + ", or what " + k.variable + " names, with the arguments and what finds mpi.h and the library of the standard ABI:\n\n" +
				"  isthmus " + k.command + " -O2 -o program program.c\n" +
				"  isthmus run -n 4 ./program\n\n" +
				"--show prints that command, and runs nothing. The libraries are those of the package isthmus-mpi, or in the folder that " + cprogram.Env + " names.",
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
	argv = append(argv, withLibrary(words, folder)...)
	if show {
		fmt.Fprintln(c.App.Writer, strings.Join(argv, " "))
		return nil
	}
	path, err := exec.LookPath(argv[0])
	if errors.Is(err, exec.ErrNotFound) {
		return &cmdline.Failure{Cause: fmt.Sprintf("%s: there is no %s here", k.command, argv[0]), Err: err, Next: "apt-get install gcc g++, or name a compiler in " + k.variable}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", k.command, err)
	}
	return fmt.Errorf("%s: %s: %w", k.command, path, syscall.Exec(path, argv, os.Environ()))
}

// withLibrary returns a compiler's arguments with those that find the header, and the library unless
// nothing is linked. The program finds the library where it is now; isthmus run says otherwise where that is
// needed.
func withLibrary(words []string, folder string) []string {
	all := append([]string{"-I" + filepath.Join(folder, "include")}, words...)
	if slices.ContainsFunc(words, func(w string) bool { return w == "-c" || w == "-E" || w == "-S" || w == "-M" || w == "-MM" }) {
		return all
	}
	lib := filepath.Join(folder, "lib")
	return append(all, "-L"+lib, "-Wl,-rpath,"+lib, "-Wl,--enable-new-dtags", "-lmpi_abi")
}

package main

import (
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/broker"
	"github.com/isthmus-grid/isthmus/cmd/internal/compile"
	"github.com/isthmus-grid/isthmus/cmd/internal/runjob"
	"github.com/isthmus-grid/isthmus/connhelper"
	"github.com/isthmus-grid/isthmus/frontal"
	_ "github.com/isthmus-grid/isthmus/internal/store/etcd" // brokers may share one
	"github.com/isthmus-grid/isthmus/lab"
	"github.com/isthmus-grid/isthmus/launch/starter"
	"github.com/isthmus-grid/isthmus/proxy"
)

// suiteName is the argument after which this program has the commands of isthmus that the lab
// starts: the daemons, run and cc. Some of its own commands have the same names.
const suiteName = "isthmus"

// suiteCommand is "isthmus-lab isthmus". The many flags of daemons are made only where they are wanted: ranks are processes of this program, too.
func suiteCommand(args []string) *cli.Command {
	c := &cli.Command{Name: suiteName, Usage: "run a daemon, or start ranks, as isthmus does: a lab needs only this one executable", Hidden: true}
	if !slices.Contains(args, suiteName) {
		return c
	}
	all := append(compile.Commands(), runjob.Command())
	for _, d := range []*cli.Command{broker.Command(), frontal.Command(), proxy.Command(), connhelper.Command(), starter.Command()} {
		d.Category = "daemons"
		d.UsageText = strings.Replace(d.UsageText, "isthmus-", "isthmus-lab "+suiteName+" ", 1)
		all = append(all, d)
	}
	c.Subcommands = all
	return c
}

// suite returns a function for the command line of a daemon.
func suite(program func(words ...string) []string) func(daemon string) []string {
	return func(daemon string) []string { return program(suiteName, daemon) }
}

// enter moves this process into a lab, and returns a function for the command line of this binary
// with other arguments.
func enter() (program func(words ...string) []string, err error) {
	if err := lab.Enter(); err != nil {
		return nil, err
	}
	return self()
}

// self returns a function for the command line of this binary with other arguments. On Linux it
// does not use the binary's path: the lab covers /run with a file system of its own, and the binary
// may lie below it.
func self() (func(words ...string) []string, error) {
	path := "/proc/self/exe"
	if runtime.GOOS != "linux" {
		var err error
		if path, err = os.Executable(); err != nil {
			return nil, err
		}
	}
	return func(words ...string) []string { return append([]string{path}, words...) }, nil
}

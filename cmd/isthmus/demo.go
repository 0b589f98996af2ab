package main

import (
	"fmt"
	"os"
	"runtime"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/lab"
	"github.com/isthmus-grid/isthmus/lab/demo"
)

// demoCommand is "isthmus demo".
func demoCommand() *cli.Command {
	return &cli.Command{
		Name:  "demo",
		Usage: "run one job over two closed sites, all on this machine",
		Flags: []cli.Flag{&cli.BoolFlag{Name: "json", Usage: "print objects, one a line, in place of tables"}},
		Action: func(c *cli.Context) error {
			if err := lab.Enter(); err != nil {
				return fmt.Errorf("the demo needs namespaces of its own: %w", err)
			}
			program, err := self()
			if err != nil {
				return err
			}
			return demo.Run(c.Context, demo.Options{Program: program, Out: c.App.Writer, JSON: c.Bool("json")})
		},
	}
}

// self returns how to run this very binary with other words. On Linux it is not
// the binary's path: the lab covers /run with a file system of its own, and the
// binary may lie below it.
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

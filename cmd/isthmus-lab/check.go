package main

import (
	"errors"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/cmd/internal/cmdline"
	"github.com/isthmus-grid/isthmus/internal/daemon"
	"github.com/isthmus-grid/isthmus/lab"
)

// checkCommand is "isthmus-lab check".
func checkCommand() *cli.Command {
	return &cli.Command{
		Name:        "check",
		Usage:       "find mistakes in files for up and run",
		ArgsUsage:   "FILE...",
		Description: "It prints the file, the line, the key and the mistake. The status is 0 without errors, and 2 with errors.",
		Flags:       []cli.Flag{&cli.BoolFlag{Name: "json", Usage: "print one object for each file, with its findings"}},
		Action: func(c *cli.Context) error {
			if c.NArg() == 0 {
				return cmdline.Usage("check: want FILE...")
			}
			status := 0
			for _, file := range c.Args().Slice() {
				status = max(status, cmdline.PrintFindings(c.App.Writer, file, "lab", checkFile(file), c.Bool("json")))
			}
			if status == 0 {
				return nil
			}
			return cli.Exit("", status)
		},
	}
}

// checkFile returns the errors in a file.
func checkFile(file string) []cmdline.Finding {
	text, err := os.ReadFile(file)
	if err != nil {
		// The file name is already in the finding.
		return cmdline.Findings(file, cmdline.Severe, daemon.Faults{{Err: errors.Unwrap(err)}})
	}
	_, err = lab.Parse(file, text)
	faults, _ := errors.AsType[daemon.Faults](err)
	return cmdline.Findings(file, cmdline.Severe, faults)
}

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/cmd/internal/cmdline"
	"github.com/isthmus-grid/isthmus/lab"
)

// A finding is an error in a file, in the form of "isthmus check".
type finding struct {
	Severity string `json:"severity"`
	File     string `json:"file"`
	Line     int    `json:"line,omitempty"`
	Key      string `json:"key,omitempty"`
	Text     string `json:"text"`
}

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
				found := checkFile(file)
				one := 2 * len(found)
				status = max(status, one)
				switch {
				case c.Bool("json"):
					if err := json.NewEncoder(c.App.Writer).Encode(map[string]any{"file": file, "as": "lab", "status": one, "findings": found}); err != nil {
						return err
					}
				case one == 0:
					fmt.Fprintf(c.App.Writer, "%s: ok (lab)\n", file)
				default:
					fmt.Fprintln(c.App.Writer, found[0])
				}
			}
			if status == 0 {
				return nil
			}
			return cli.Exit("", status)
		},
	}
}

// checkFile returns the first error in a file, or none.
func checkFile(file string) []finding {
	text, err := os.ReadFile(file)
	if err == nil {
		_, err = lab.Parse(file, text)
	} else {
		err = errors.Unwrap(err) // the file name is already in the finding
	}
	if err == nil {
		return []finding{}
	}
	f := finding{Severity: "error", File: file, Text: err.Error()}
	if e, ok := errors.AsType[*lab.SpecError](err); ok {
		f.Line, f.Key, f.Text = e.Line, e.Key, e.Err.Error()
	}
	return []finding{f}
}

func (f finding) String() string {
	text := f.File
	if f.Line > 0 {
		text += fmt.Sprintf(":%d", f.Line)
	}
	text += ": " + f.Severity + ": "
	if f.Key != "" {
		text += f.Key + ": "
	}
	return text + f.Text
}

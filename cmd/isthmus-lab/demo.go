package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/lab"
	"github.com/isthmus-grid/isthmus/lab/demo"
)

// demoCommand is "isthmus-lab demo".
func demoCommand() *cli.Command {
	return &cli.Command{
		Name:  "demo",
		Usage: "run one job over two closed sites, all on this machine",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "full", Usage: "print what the programs print, and each path with its reason"},
			&cli.BoolFlag{Name: "json", Usage: "print objects, one per line"},
		},
		Action: func(c *cli.Context) error {
			if err := lab.Enter(); err != nil {
				return fmt.Errorf("the demo needs its own namespaces: %w", err)
			}
			program, err := self()
			if err != nil {
				return err
			}
			return demo.Run(c.Context, demo.Options{Program: program, Out: c.App.Writer, JSON: c.Bool("json"), Full: c.Bool("full")})
		},
	}
}

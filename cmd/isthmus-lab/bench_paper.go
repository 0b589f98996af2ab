package main

import (
	"os"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/bench/paper"
)

// benchPaperCommand is "isthmus-lab bench paper": tables and figures of the papers.
func benchPaperCommand() *cli.Command {
	var only string
	o := paper.Options{Err: os.Stderr}
	return &cli.Command{
		Name:  "paper",
		Usage: "measure tables and figures of the articles on QCG-OMPI, P2P-MPI and JaceP2P-V2: whether what they show is so here (about " + strconv.Itoa(paper.Minutes()) + " minutes)",
		Description: "Experiments are " + strings.Join(paper.Names(), ", ") + ".\n" +
			"Each row is a ratio, or where two lines cross, beside the article's figure. TSQR needs root, to limit processors.",
		Flags: []cli.Flag{
			jsonFlag(&o.JSON),
			&cli.StringFlag{Name: "o", Usage: "`FOLDER` for pictures of the figures, created if missing", Destination: &o.Curves},
			&cli.StringFlag{Name: "only", Usage: "measure the experiments that match `REGEXP`, such as qcg-table or figure-9", Destination: &only},
			&cli.IntFlag{Name: "repeat", Usage: "measure each figure `N` times, in turn; the applications once", Value: 3, Destination: &o.Repeat},
		},
		Action: func(c *cli.Context) (err error) {
			if o.Only, err = repeatAndOnly(c, o.Repeat, only); err != nil {
				return err
			}
			if err := o.Check(); err != nil {
				return mistake(c, err)
			}
			program, err := enter()
			if err != nil {
				return err
			}
			o.Self, o.Out = program(), c.App.Writer
			return paper.Run(c.Context, o)
		},
	}
}

// Isthmus is the command of users and admins: it makes certificates and job keys,
// starts the ranks of a job, checks settings, and asks the daemons. It also holds the
// four daemons, so that one file is enough to run everything.
package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/broker"
	"github.com/isthmus-grid/isthmus/cmd/internal/cmdline"
	"github.com/isthmus-grid/isthmus/cmd/internal/compile"
	"github.com/isthmus-grid/isthmus/cmd/internal/runjob"
	"github.com/isthmus-grid/isthmus/connhelper"
	"github.com/isthmus-grid/isthmus/frontal"
	"github.com/isthmus-grid/isthmus/launch/jobagent"
	"github.com/isthmus-grid/isthmus/launch/starter"
	"github.com/isthmus-grid/isthmus/proxy"
)

func main() {
	jobagent.Main()
	app := &cli.App{
		Name:                      "isthmus",
		Usage:                     "run a message-passing job across sites separated by firewalls",
		DisableSliceFlagSeparator: true, // values are literal: NAME=0,1 is one, and a flag is repeated for another
		Commands: []*cli.Command{
			runjob.Command(), runjob.AttachCommand(), psCommand(), killCommand(), hostsCommand(), topCommand(), nodeCommand(), upCommand(), runjob.KeyCommand(), caCommand(), checkCommand(), policyCommand(), drainCommand(), statusCommand(), planCommand(), loginCommand(), logoutCommand(), contextCommand(), doctorCommand(), bundleCommand(), auditCommand(),
			movedCommand("demo"), movedCommand("lab"), movedCommand("bench"), movedCommand("example"),
		},
	}
	app.Commands = append(app.Commands, compile.Commands()...)
	for _, d := range []*cli.Command{broker.Command(), frontal.Command(), proxy.Command(), connhelper.Command(), starter.Command()} {
		d.Category = "daemons"
		d.UsageText = strings.Replace(d.UsageText, "isthmus-", "isthmus ", 1)
		app.Commands = append(app.Commands, d)
	}
	words, ignored := runjob.WithoutMCA(os.Args)
	if os.Args = words; len(ignored) > 0 {
		fmt.Fprintln(os.Stderr, "isthmus: run: Open MPI's parameters are ignored: "+strings.Join(ignored, ", "))
	}
	os.Exit(cmdline.Run(app))
}

// movedCommand reports that a command is now part of isthmus-lab.
func movedCommand(name string) *cli.Command {
	return &cli.Command{Name: name, Hidden: true, SkipFlagParsing: true, Action: func(c *cli.Context) error {
		words := append([]string{"isthmus-lab", name}, c.Args().Slice()...)
		if name == "lab" {
			words = slices.Delete(words, 1, 2)
		}
		return cmdline.Usage("this command is now: " + strings.Join(words, " "))
	}}
}

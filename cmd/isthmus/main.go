// Isthmus is the command of users and admins: it shows the suite on this
// machine, makes certificates and job keys, starts the ranks of a job, builds
// rehearsal sites and measures. It also holds the four daemons, so that one
// file is enough to try everything.
package main

import (
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/broker"
	"github.com/isthmus-grid/isthmus/connhelper"
	"github.com/isthmus-grid/isthmus/frontal"
	"github.com/isthmus-grid/isthmus/launch/jobagent"
	"github.com/isthmus-grid/isthmus/launch/starter"
	"github.com/isthmus-grid/isthmus/proxy"
)

func main() {
	jobagent.Main()
	app := &cli.App{
		Name:  "isthmus",
		Usage: "one message-passing job over sites that firewalls keep apart",
		Commands: []*cli.Command{
			demoCommand(), runCommand(), psCommand(), killCommand(), hostsCommand(), nodeCommand(), jobCommand(), caCommand(), checkCommand(), policyCommand(), drainCommand(), statusCommand(), planCommand(), doctorCommand(), bundleCommand(), auditCommand(),
			labCommand(), benchCommand(), exampleCommand(),
		},
		HideVersion:     true,
		HideHelpCommand: true,
		Action:          wantCommand(""),
		OnUsageError:    badFlags(""),
		ExitErrHandler:  func(*cli.Context, error) {}, // exit reports it, once
	}
	for _, d := range []*cli.Command{broker.Command(), frontal.Command(), proxy.Command(), connhelper.Command(), starter.Command()} {
		d.Category = "daemons"
		d.UsageText = strings.Replace(d.UsageText, "isthmus-", "isthmus ", 1)
		app.Commands = append(app.Commands, d)
	}
	strict("", app.Commands)
	os.Exit(exit(app.Run(os.Args)))
}

func benchCommand() *cli.Command {
	return &cli.Command{
		Name:        "bench",
		Usage:       "measure, against what it is to be compared with",
		Subcommands: []*cli.Command{benchSetupCommand(), benchCrowdCommand(), benchRelayCommand(), benchScaleCommand(), benchLinkCommand(), benchP2PCommand(), benchOverlapCommand(), benchTSQRCommand(), benchRay2meshCommand(), benchCollCommand(), benchStripeCommand(), benchBrokerCommand(), benchLabCommand(), benchPlotCommand(), benchLearnCommand(), benchLaunchCommand()},
	}
}

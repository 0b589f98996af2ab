// Isthmus-lab builds sites with firewalls on this machine, and demonstrates, tests and measures the
// suite on them. It includes the commands of isthmus that run there, so that one file is enough;
// users and admins need it only for rehearsals.
package main

import (
	"os"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/cmd/internal/cmdline"
	"github.com/isthmus-grid/isthmus/launch/jobagent"
)

func main() {
	jobagent.Main()
	os.Exit(cmdline.Run(&cli.App{
		Name:  "isthmus-lab",
		Usage: "sites with their firewalls on this machine, for rehearsals, tests and measurements",
		Description: "FILE is YAML:\n\n" + `  wan: {rtt: 10ms, loss: 0.1%, rate: 1Gbit}
  sites:
    - {name: alpha, preset: stateful, nodes: 2}
    - {name: beta, preset: no-route/egress-443, nodes: [login, c1]}
    - {name: pub, preset: public, nodes: [broker, proxy]}

A preset is the kind of firewall: ` + presets() + `. With
no-route/ in front, nodes have no route out but their gateway has. Public hosts have no firewall: public.`,
		Commands: []*cli.Command{
			demoCommand(), upCommand(), runCommand(), checkCommand(), matrixCommand(), breakCommand(), breakEndCommand(), randomCommand(), unprivilegedCommand(), helpersCommand(),
			benchCommand(), exampleCommand(), suiteCommand(os.Args),
		},
	}))
}

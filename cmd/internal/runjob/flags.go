package runjob

import (
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/launch/allocate"
	"github.com/isthmus-grid/isthmus/launch/submit"
)

// gridFlags are those of "isthmus run" that apply over the grid only.
func gridFlags() []cli.Flag {
	const category = "over the grid"
	return []cli.Flag{
		&cli.StringFlag{Category: category, Name: "strategy", Aliases: []string{"a"}, Usage: "how hosts are chosen: `" + strings.Join(allocate.Strategies, "|") + "`; with --graph also " + strings.Join(allocate.GraphStrategies, ", "), DefaultText: "spread, with --replicas or --graph auto"},
		&cli.StringFlag{Category: category, Name: "hosts", Usage: "run on these hosts: `NODE@SITE:RANKS,...`, ranks are numbered in this order; without :RANKS the strategy distributes them"},
		&cli.StringFlag{Category: category, Name: "hostfile", Aliases: []string{"machinefile"}, Usage: "`FILE` with them instead, as for mpirun: NODE@SITE slots=RANKS in each line"},
		&cli.StringFlag{Category: category, Name: "profile", Usage: "`FILE` that describes the groups of processes and what they need"},
		&cli.IntFlag{Category: category, Name: "replicas", Aliases: []string{"r", "copies"}, Value: 1, Usage: "`NUMBER` of replicas of each rank, on different hosts: the job goes on while each rank has one"},
		&cli.StringFlag{Category: category, Name: "replica-table", Value: submit.ReplicaTables[0], Usage: "with --replicas: which replicas of a rank send to those of another, `" + strings.Join(submit.ReplicaTables, "|") + "`: each to the one of its number, or the first one to all"},
		&cli.BoolFlag{Category: category, Name: "send-deterministic", Usage: "with --replicas: what the program sends does not depend on the order in which messages arrive, so that replicas wait less for each other"},
		&cli.BoolFlag{Category: category, Name: "pin-rank0", Usage: "run rank 0 once, on this host, or the nearest one that takes jobs, whatever --replicas is: the job ends with it"},
		&cli.BoolFlag{Category: category, Name: "independent", Usage: "with --replicas: replicas are processes of their own, which do not use the message library; the output of each is printed"},
		&cli.IntFlag{Category: category, Name: "replace", Usage: "`NUMBER` of processes that are replaced when a signal or the loss of their host has ended them: another host starts a process that goes on with the rank, for programs that know that (the library's Replacements, aiac.RunReplaceable); with --replicas a new replica in place of the lost one, which joins at a milestone of the program (the library's Milestone)"},
		&cli.StringFlag{Category: category, Name: "pattern", Value: allocate.Dense.String(), Usage: "for auto: which ranks communicate, `dense|neighbour|master`"},
		&cli.StringFlag{Category: category, Name: "graph", Usage: "`FILE` in METIS' format that says which ranks communicate: a vertex for each rank, which then runs alone on its host"},
		&cli.StringFlag{Category: category, Name: "message", Usage: "for auto and graphs: `SIZE` of the job's messages, such as 1MiB, so that the bandwidth between sites counts too; without it, only latency counts"},
		&cli.StringFlag{Category: category, Name: "memory", Usage: "`SIZE` that each process needs, such as 2GiB"},
		&cli.Float64Flag{Category: category, Name: "cores", Usage: "`NUMBER` that each process needs"},
		&cli.StringSliceFlag{Category: category, Name: "limit", Usage: "`NAME=VALUE`: a resource limit for each process, as in setrlimit(2): as, core, cpu, data, fsize, memlock, nofile, nproc or stack; may be repeated"},
		&cli.DurationFlag{Category: category, Name: "wait", Usage: "`HOW-LONG` to wait for hosts when there are too few, 0 for not at all", DefaultText: "while other jobs occupy them"},
		&cli.DurationFlag{Category: category, Name: "hang", Usage: "`HOW-LONG` a host, or the path to it, may be silent before its processes are considered dead; at most 1h", DefaultText: "5s"},
		&cli.BoolFlag{Category: category, Name: "installed", Usage: "the program is already on the hosts under the same name: do not copy it"},
		&cli.StringSliceFlag{Category: category, Name: "input", Usage: "`FILE` or folder to copy to each host, into the working folder of the processes; may be repeated"},
		&cli.StringSliceFlag{Category: category, Name: "fetch", Usage: "`FILES` to copy back from each host at the end; a pattern such as 'out.*'; may be repeated"},
		&cli.StringFlag{Category: category, Name: "fetch-to", Value: ".", Usage: "`FOLDER` for them; they become SITE/NODE/FILE in it"},
		&cli.StringSliceFlag{Category: category, Name: "env", Usage: "`NAME[=VALUE]` for the environment of the processes; without =VALUE, the value of the variable here; a value is taken as it is, and the flag repeated for another variable"},
		&cli.BoolFlag{Category: category, Name: "dry-run", Usage: "show where the job would run, without starting it"},
		&cli.StringFlag{Category: category, Name: "mtbf", Usage: "with --dry-run and --walltime: show how likely the job is to fail with 1 to 4 replicas, if a host fails every `TIME` on average, such as 30d"},
		&cli.StringFlag{Category: category, Name: "walltime", Usage: "with --dry-run and --mtbf: the `TIME` that the job takes, such as 24h"},
	}
}

// gridFlagNames returns their names.
func gridFlagNames() []string {
	var names []string
	for _, f := range gridFlags() {
		names = append(names, f.Names()[0])
	}
	return names
}

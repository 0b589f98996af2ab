package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/connhelper"
	"github.com/isthmus-grid/isthmus/internal/ca"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/ranks"
	"github.com/isthmus-grid/isthmus/overlay"
)

// nodeCommand is "isthmus node": a helper for the time of a batch job, where no admin
// has put one on the nodes.
func nodeCommand() *cli.Command {
	return &cli.Command{
		Name:  "node",
		Usage: "make this node of a Slurm allocation a node of the grid, until the allocation ends",
		Description: "One task on each node of the allocation runs the node's helper, for the processes of its own user only:\n\n" +
			"  export ISTHMUS_JOB_KEY=$(cat myjob.key)\n" +
			"  eval $(isthmus node --env)\n" +
			"  srun --overlap --ntasks-per-node=1 isthmus node --site sitea --frontal gateway:7440 --certs ~/certs &\n" +
			"  srun --overlap ./program\n\n" +
			"The programs that srun starts take their ranks and their number from Slurm. They wait for the helper.\n" +
			"The folder of --certs has what `isthmus ca issue --out FOLDER helper SITE/NODE` writes, for each node as Slurm names it.\n" +
			"Without --config the node offers the cores that the allocation has of it, to jobs that are launched\n" +
			"from elsewhere in the grid, and keeps their files for as long as the allocation lasts.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "env", Usage: "print, for a shell, what programs of the allocation need in their environment, and end"},
			&cli.StringFlag{Name: "site", Usage: "`NAME` of the site"},
			&cli.StringFlag{Name: "frontal", Usage: "`HOST:PORT` where the site's frontal listens for helpers"},
			&cli.StringFlag{Name: "certs", Usage: "`FOLDER` with the certificates of the site's helpers"},
			&cli.StringFlag{Name: "config", Usage: "`FILE` with further settings of the helper, such as its offer"},
		},
		Action: func(c *cli.Context) error {
			if err := words(c, "node", 0); err != nil {
				return err
			}
			a, err := allocationFrom(os.LookupEnv, os.TempDir(), os.Getuid())
			if err != nil {
				return usage("node: " + err.Error())
			}
			if c.Bool("env") {
				fmt.Fprintf(c.App.Writer, "export %s=%s\n", ranks.EnvHelper, a.socket())
				return nil
			}
			args, err := a.helperArgs(c.String("site"), c.String("frontal"), c.String("certs"), c.String("config"))
			if err != nil {
				return usage("node: " + err.Error())
			}
			if a.task != 0 {
				return nil // another task of this node is the helper
			}
			return a.serve(c, args)
		},
	}
}

// allocation is what Slurm says of the batch job and of this task's place in it.
type allocation struct {
	job   string
	node  string // as Slurm names it
	task  int    // on this node, from 0
	cores int    // of this node; 0: Slurm does not say
	dir   string // of the helper's socket, the same on all nodes
}

// allocationFrom reads the environment through lookup. temp is the folder for
// temporary files, and uid the user.
func allocationFrom(lookup func(string) (string, bool), temp string, uid int) (allocation, error) {
	get := func(name string) string { v, _ := lookup(name); return v }
	number := func(name string) (int, error) {
		text := get(name)
		if text == "" {
			return 0, nil
		}
		n, err := strconv.ParseUint(text, 10, 31)
		if err != nil {
			return 0, fmt.Errorf("%s=%q is no number", name, text)
		}
		return int(n), nil
	}
	a := allocation{job: get("SLURM_JOB_ID"), node: strings.ToLower(get("SLURMD_NODENAME"))}
	if _, err := strconv.ParseUint(a.job, 10, 64); err != nil {
		return a, fmt.Errorf("SLURM_JOB_ID=%q: this is no allocation of Slurm; start it with srun", a.job)
	}
	var errs [2]error
	a.task, errs[0] = number("SLURM_LOCALID")
	a.cores, errs[1] = number("SLURM_CPUS_ON_NODE")
	a.dir = filepath.Join(temp, fmt.Sprintf("isthmus-%d-%s", uid, a.job))
	return a, errors.Join(errs[:]...)
}

func (a allocation) socket() string { return filepath.Join(a.dir, "helper.sock") }

// helperArgs returns the words that start the helper.
func (a allocation) helperArgs(site, frontal, certs, config string) ([]string, error) {
	switch "" {
	case site:
		return nil, errors.New("give --site, the name of the site")
	case certs:
		return nil, errors.New("give --certs, the folder with the certificates of the site's helpers")
	case frontal + config:
		return nil, errors.New("give --frontal, where the site's frontal listens for helpers")
	case a.node:
		return nil, errors.New("SLURMD_NODENAME is not set; start it with srun, which runs it on the nodes")
	}
	node, err := overlay.ParseNodeID(site + "/" + a.node)
	if err != nil {
		return nil, err
	}
	files := ca.FilesFor(certs, control.Identity{Role: control.RoleHelper, Site: node.Site, Name: node.Name})
	if _, err := os.Stat(files.Cert); err != nil {
		return nil, fmt.Errorf("node %v has no certificate: %w; make it with: isthmus ca issue --out %s helper %v", node, err, certs, node)
	}
	args := []string{
		"helper", "--socket", a.socket(), "--public=false", "--tls-cert", files.Cert, "--tls-key", files.Key, "--tls-ca", files.CA,
	}
	if frontal != "" {
		args = append(args, "--frontal", frontal)
	}
	switch {
	case config != "":
		args = append(args, "--config", config)
	default:
		args = append(args, "--gate-store", filepath.Join(a.dir, "gate"))
		if a.cores > 0 {
			args = append(args, "--offer-processes", strconv.Itoa(a.cores), "--offer-cpu", strconv.Itoa(a.cores))
		}
	}
	return args, nil
}

// serve is the helper, until it is told to end. What it had in its folder goes with it.
func (a allocation) serve(c *cli.Context, args []string) error {
	if err := privateFolder(a.dir); err != nil {
		return fmt.Errorf("node: %w", err)
	}
	defer os.RemoveAll(a.dir)
	helper := connhelper.Command()
	app := &cli.App{
		Name: "isthmus node", Flags: helper.Flags, Action: helper.Action, OnUsageError: helper.OnUsageError,
		HideHelp: true, HideVersion: true, Writer: c.App.Writer, ErrWriter: c.App.ErrWriter, ExitErrHandler: func(*cli.Context, error) {},
	}
	return app.RunContext(c.Context, args)
}

// privateFolder makes a folder that only its owner may enter. One that is there must
// be such: others may write beside it.
func privateFolder(dir string) error {
	err := os.Mkdir(dir, 0o700)
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); !info.IsDir() || info.Mode().Perm() != 0o700 || !ok || int(owner.Uid) != os.Getuid() {
		return fmt.Errorf("%s is there and is no folder of this user alone (%v); remove it, or set TMPDIR, the same on all nodes", dir, info.Mode())
	}
	return nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/cmd/internal/ask"
	"github.com/isthmus-grid/isthmus/cmd/internal/cmdline"
	"github.com/isthmus-grid/isthmus/connhelper"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/ipc/local"
	"github.com/isthmus-grid/isthmus/internal/job/ranks"
	"github.com/isthmus-grid/isthmus/internal/pki/ca"
	"github.com/isthmus-grid/isthmus/internal/pki/enrol"
	"github.com/isthmus-grid/isthmus/overlay"
)

// nodeCommand is "isthmus node": a helper for the duration of a batch job, on nodes without an
// admin's helper.
func nodeCommand() *cli.Command {
	return &cli.Command{
		Name:  "node",
		Usage: "make this node of a Slurm allocation a node of the grid until the allocation ends",
		Description: "One task on each node of the allocation runs the node's helper, for the processes of its own user only:\n\n" +
			"  export ISTHMUS_JOB_KEY=$(cat myjob.key)\n" +
			"  eval $(isthmus node --env)\n" +
			"  srun --overlap --ntasks-per-node=1 isthmus node --frontal gateway:7440 --broker broker.example.org:443 \\\n" +
			"    --token /run/isthmus-alloc-$SLURM_JOB_ID/token &\n" +
			"  srun --overlap ./program\n\n" +
			"The programs that srun starts take their rank and the number of ranks from Slurm. They wait for the helper.\n" +
			"The token is that of the allocation (isthmus ca token --allocation), as the site's prolog left it for the job's user. Each node\n" +
			"enrols with it once, as SITE/alloc-JOB.NODE, until the allocation ends; the key stays in the job's own folder and is deleted with it.\n" +
			"Instead of a token, --certs names a folder with the files that `isthmus ca issue --out FOLDER helper NODE@SITE` writes, for each node as\n" +
			"Slurm names it. Without --config the node offers the cores that the allocation has of it, to jobs that the same user\n" +
			"launches from the site's other nodes, and keeps their files for as long as the allocation lasts.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "env", Usage: "print, for a shell, the environment that programs of the allocation need, and exit"},
			&cli.StringFlag{Name: "site", Usage: "`NAME` of the site; not needed with a token"},
			&cli.StringFlag{Name: "frontal", Usage: "`HOST:PORT` where the site's frontal listens for helpers"},
			&cli.StringFlag{Name: "token", Usage: "`FILE` with the allocation's token, readable by the job's user only", EnvVars: []string{"ISTHMUS_TOKEN_FILE"}},
			&cli.StringFlag{Name: "broker", Usage: "with --token: `HOST:PORT` of the broker that issues the certificate", EnvVars: []string{"ISTHMUS_BROKER"}},
			&cli.StringFlag{Name: "certs", Usage: "instead of --token: `FOLDER` with the certificates of the site's helpers"},
			&cli.StringFlag{Name: "config", Usage: "`FILE` with further settings of the helper, such as its offer"},
		},
		Action: func(c *cli.Context) error {
			if err := cmdline.Words(c, "node", 0); err != nil {
				return err
			}
			a, err := allocationFrom(os.LookupEnv, os.TempDir(), os.Getuid())
			if err != nil {
				return cmdline.Usage("node: " + err.Error())
			}
			if c.Bool("env") {
				fmt.Fprintf(c.App.Writer, "export %s=%s\n", ranks.EnvHelper, a.socket())
				return nil
			}
			o := nodeOptions{c.String("site"), c.String("frontal"), c.String("certs"), c.String("config"), c.String("token"), c.String("broker")}
			if o.certs != "" && !c.IsSet("token") {
				o.token = "" // a token from the environment
			}
			h, err := a.helper(o)
			if err != nil {
				return cmdline.Usage("node: " + err.Error())
			}
			if a.task != 0 {
				return nil // another task of this node is the helper
			}
			return a.serve(c, h)
		},
	}
}

// nodeOptions are the command line's options.
type nodeOptions struct{ site, frontal, certs, config, token, broker string }

// allocation is Slurm's description of the batch job and of this task in it.
type allocation struct {
	job   string
	node  string // as named by Slurm
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
			return 0, fmt.Errorf("%s=%q is not a number", name, text)
		}
		return int(n), nil
	}
	a := allocation{job: get("SLURM_JOB_ID"), node: strings.ToLower(get("SLURMD_NODENAME"))}
	if _, err := strconv.ParseUint(a.job, 10, 64); err != nil {
		return a, fmt.Errorf("SLURM_JOB_ID=%q: this is not a Slurm allocation; start the command with srun", a.job)
	}
	var errs [2]error
	a.task, errs[0] = number("SLURM_LOCALID")
	a.cores, errs[1] = number("SLURM_CPUS_ON_NODE")
	a.dir = filepath.Join(temp, fmt.Sprintf("isthmus-%d-%s", uid, a.job))
	return a, errors.Join(errs[:]...)
}

func (a allocation) socket() string { return filepath.Join(a.dir, "helper.sock") }

// allocationHelper is the helper of this node of the allocation.
type allocationHelper struct {
	node   overlay.NodeID
	files  ca.Files
	args   []string // command line arguments
	offer  bool     // with settings of its own: offers to the jobs of its user
	token  string   // for enrolment; "" if it has a certificate
	broker string
}

// helper returns the helper for the options.
func (a allocation) helper(o nodeOptions) (h allocationHelper, err error) {
	switch {
	case o.token != "" && o.certs != "":
		return h, errors.New("give either --token or --certs")
	case o.token == "" && o.certs == "":
		return h, errors.New("give --token, the file with the allocation's token, or --certs, the folder with the certificates of the site's helpers")
	case o.frontal+o.config == "":
		return h, errors.New("give --frontal, where the site's frontal listens for helpers")
	case a.node == "":
		return h, errors.New("SLURMD_NODENAME is not set; start the command with srun, which runs it on the nodes")
	}
	if o.token != "" {
		err = a.byToken(&h, o)
	} else {
		err = a.byCertificate(&h, o)
	}
	if err != nil {
		return h, err
	}
	h.args = []string{"helper", "--socket", a.socket(), "--public=false", "--node-service-end-jobs", "--tls-cert", h.files.Cert, "--tls-key", h.files.Key, "--tls-ca", h.files.CA}
	if o.frontal != "" {
		h.args = append(h.args, "--frontal", o.frontal)
	}
	if h.offer = o.config == ""; h.offer {
		o.config = a.settings()
	}
	h.args = append(h.args, "--config", o.config)
	return h, nil
}

// byCertificate completes a helper with a certificate made by the site's admin.
func (a allocation) byCertificate(h *allocationHelper, o nodeOptions) (err error) {
	if o.site == "" {
		return errors.New("give --site, the name of the site")
	}
	if h.node, err = overlay.ParseNodeID(o.site + "/" + a.node); err != nil {
		return err
	}
	h.files = ca.FilesFor(o.certs, control.Identity{Role: control.RoleHelper, Site: h.node.Site, Name: h.node.Name})
	if _, err := os.Stat(h.files.Cert); err != nil {
		return fmt.Errorf("node %v has no certificate: %w; create it with: isthmus ca issue --out %s helper %v, or use --token", h.node, err, o.certs, h.node)
	}
	return nil
}

// byToken completes a helper that is to enrol.
func (a allocation) byToken(h *allocationHelper, o nodeOptions) error {
	if _, _, err := net.SplitHostPort(o.broker); err != nil {
		return errors.New("give --broker, HOST:PORT of the broker that issues the certificate")
	}
	text, err := ca.ReadTokenFile(o.token)
	if err != nil {
		return fmt.Errorf("--token: %w; the site's prolog leaves it for the job's user (isthmus ca token --allocation %s)", err, a.job)
	}
	t, err := ca.ReadToken(text)
	if err != nil {
		return fmt.Errorf("--token %s: %w", o.token, err)
	}
	if t.Allocation == nil || t.Allocation.ID != a.job {
		return fmt.Errorf("--token %s: the token is for %s, but this is allocation %s", o.token, t.Identity, a.job)
	}
	id, err := t.For(a.node)
	if err != nil {
		return err
	}
	if o.site != "" && o.site != string(id.Site) {
		return fmt.Errorf("--token %s: the token is for a node of %s, not of %s", o.token, id.Site, o.site)
	}
	h.node, h.token, h.broker = id.Node(), text, o.broker
	dir := filepath.Join(a.dir, "tls")
	h.files = ca.Files{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem"), CA: filepath.Join(dir, "ca.pem")}
	return nil
}

// settings returns the file with the settings written for the helper.
func (a allocation) settings() string { return filepath.Join(a.dir, "helper.yaml") }

// offerText offers the allocation's cores to the jobs of an account of the site.
func (a allocation) offerText(site overlay.SiteID, account string) string {
	text := fmt.Sprintf("node_service: {store: %q}\noffer:\n  jobs: 1\n  allow: [{identity: %q}]\n", filepath.Join(a.dir, "jobs"), account+"@"+string(site)+"/*")
	if a.cores > 0 {
		text += fmt.Sprintf("  processes: %d\n  cpu: %d\n", a.cores, a.cores)
	}
	return text
}

// serve runs the helper until a signal ends it, and then removes its folder's contents.
func (a allocation) serve(c *cli.Context, h allocationHelper) error {
	if err := privateFolder(a.dir); err != nil {
		return fmt.Errorf("node: %w", err)
	}
	defer os.RemoveAll(a.dir)
	if h.offer {
		if err := os.WriteFile(a.settings(), []byte(a.offerText(h.node.Site, local.Account(uint32(os.Getuid())))), 0o600); err != nil {
			return fmt.Errorf("node: %w", err)
		}
	}
	if h.token != "" {
		if err := h.enrol(c); err != nil {
			return fmt.Errorf("node: %w", err)
		}
	}
	helper := connhelper.Command()
	app := &cli.App{
		Name: "isthmus node", Flags: helper.Flags, Action: helper.Action, OnUsageError: helper.OnUsageError,
		HideHelp: true, HideVersion: true, Writer: c.App.Writer, ErrWriter: c.App.ErrWriter, ExitErrHandler: func(*cli.Context, error) {},
	}
	return app.RunContext(c.Context, h.args)
}

// enrol gets the node's certificate with its token, unless one is left from a helper that was
// killed here: a node enrols only once.
func (h allocationHelper) enrol(c *cli.Context) error {
	if creds, err := control.LoadCredentials(h.files.Cert, h.files.Key, h.files.CA); err == nil && creds.Identity().Node() == h.node && time.Now().Before(creds.Leaf().NotAfter) {
		return nil
	}
	_, host, _ := strings.Cut(h.node.Name, ".")
	var got *enrol.Enrolled
	err := ask.Enrolment(c, "node", h.broker, func(ctx context.Context, dial ask.Dial) (err error) {
		got, err = enrol.Ask(ctx, h.broker, h.token, host, dial)
		return err
	})
	if err != nil {
		return err
	}
	return ca.InstallAs(h.files, got.Chain, got.Key, got.Root)
}

// privateFolder makes a folder that only its owner may enter. An existing one must be such: others
// may write beside it.
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
		return fmt.Errorf("%s exists and is not a private folder of this user (%v); remove it, or set TMPDIR to the same value on all nodes", dir, info.Mode())
	}
	return nil
}

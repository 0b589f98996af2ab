package starter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/user"
	"path"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/internal/account/audit"
	"github.com/isthmus-grid/isthmus/internal/daemon"
	"github.com/isthmus-grid/isthmus/internal/ipc/local"
)

// DefaultSocket is the default of the setting "socket".
const DefaultSocket = "/run/isthmus-starter/starter.sock"

// Config is the starter's file and flags.
type Config struct {
	Socket string       `yaml:"socket" default:"/run/isthmus-starter/starter.sock" help:"The Unix socket for requests of the helper (starter in its settings)."`
	Helper string       `yaml:"helper" default:"isthmus" help:"The account that may send requests, by name or number: the helper's. No job runs as it, nor in its group, which may read the daemons' keys."`
	Map    []MapRule    `yaml:"map" help:"Which local accounts jobs run as. The first rule that matches the submitter decides; a submitter that no rule matches gets an account from uids."`
	UIDs   string       `yaml:"uids" default:"1900000000-1900009999" help:"Range of user ids, FIRST-LAST, that are not used otherwise: each submitter has one of them while one of its jobs runs here. At least as many as offer.jobs of the helper."`
	Tasks  int          `yaml:"tasks" default:"16384" min:"0" max:"4194304" help:"Maximum number of processes and threads of one job, if it has a control group; 0 is the limit of the unit (TasksMax)."`
	State  daemon.Path  `yaml:"state" example:"$STATE/agents.json" help:"File from which a restarted starter learns the running jobs. Empty: agents.json in the service manager's state folder (STATE_DIRECTORY)."`
	Audit  audit.Config `yaml:"audit" help:"The audit log: every job agent that was started, with its account and submitter, and every refused request."`
}

// MapRule maps an identity to an account.
type MapRule struct {
	Identity string `yaml:"identity" required:"true" help:"The submitter of the job, as USER@SITE/NODE; an asterisk stands for any part of a name, as in alice@sitea/*."`
	Account  string `yaml:"account" required:"true" help:"The local account, by name or number. Jobs of two submitters never run in the same account at the same time; the same user of another node is another submitter, unless the rule names user and site, as alice@sitea/* does."`
}

// Check validates the keys against each other.
func (c Config) Check() error {
	if _, err := parseRange(c.UIDs); err != nil {
		return daemon.Wrong("uids", "%v", err)
	}
	for _, m := range c.Map {
		if _, err := path.Match(m.Identity, ""); err != nil || !strings.Contains(m.Identity, "@") {
			return daemon.Wrong("map", "identity %q: want USER@SITE/NODE", m.Identity)
		}
	}
	return nil
}

// parseRange parses FIRST-LAST. Numbers below 1000 belong to the system.
func parseRange(text string) (Range, error) {
	a, b, _ := strings.Cut(text, "-")
	first, err := strconv.ParseUint(a, 10, 31)
	last, err2 := strconv.ParseUint(b, 10, 31)
	if err != nil || err2 != nil || first < 1000 || last < first || last-first >= 1<<20 || first <= 65535 && last >= 65534 {
		return Range{}, fmt.Errorf("%q: want FIRST-LAST, at least 1000, at most 1048576 numbers, and neither 65534 nor 65535 among them", text)
	}
	return Range{uint32(first), uint32(last)}, nil
}

// uidOf returns an account's user id.
func uidOf(account string) (uint32, error) {
	if n, err := strconv.ParseUint(account, 10, 32); err == nil {
		return uint32(n), nil
	}
	u, err := user.Lookup(account)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(u.Uid, 10, 32)
	return uint32(n), err
}

// groupOf returns an account's group id; 0 for a number without a name, which has none.
func groupOf(uid uint32) (uint32, error) {
	u, err := user.LookupId(strconv.FormatUint(uint64(uid), 10))
	if _, unknown := errors.AsType[user.UnknownUserIdError](err); unknown {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(u.Gid, 10, 32)
	return uint32(n), err
}

var spec = daemon.Spec[Config]{
	Name:  "isthmus-starter",
	Usage: "start the jobs of this node in accounts of their own",
	Serve: serve,
}

// Command returns the daemon as a command of another program.
func Command() *cli.Command { return daemon.Command(spec) }

// Main runs the daemon as a program of its own.
func Main() { daemon.Main(spec) }

func serve(ctx context.Context, cfg Config, log *slog.Logger, ready func(facts ...string)) error {
	opts := Options{Log: log, State: string(cfg.State), Tasks: cfg.Tasks}
	var err error
	if opts.Helper, err = uidOf(cfg.Helper); err != nil {
		return fmt.Errorf("helper: %w", err)
	}
	if opts.Keys, err = groupOf(opts.Helper); err != nil {
		return fmt.Errorf("helper: %w", err)
	}
	if opts.Range, err = parseRange(cfg.UIDs); err != nil {
		return fmt.Errorf("uids: %w", err)
	}
	for _, m := range cfg.Map {
		uid, err := uidOf(m.Account)
		switch {
		case err != nil:
			return fmt.Errorf("map: %w", err)
		case uid == 0 || uid == opts.Helper:
			return fmt.Errorf("map: %s is root's or the helper's account; no job runs as that", m.Account)
		case opts.Range.Has(uid):
			return fmt.Errorf("map: %s is one of uids, which must not be used otherwise: files and processes of uids are removed after a job", m.Account)
		}
		opts.Rules = append(opts.Rules, Mapped{m.Identity, uid})
	}
	if dir := os.Getenv("STATE_DIRECTORY"); opts.State == "" && path.IsAbs(dir) {
		opts.State = path.Join(dir, "agents.json")
	}
	trail, err := audit.Open(cfg.Audit, "starter", log)
	if err != nil {
		return err
	}
	defer trail.Start()()
	opts.Audit = trail
	daemon.OnChange(ctx, trail.NoteChange)
	ln, err := local.ListenUnix(cfg.Socket, 0o666) // the kernel authenticates the caller
	if err != nil {
		return err
	}
	ready("socket=" + cfg.Socket)
	return New(opts).Serve(ctx, ln)
}

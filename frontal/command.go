package frontal

import (
	"context"
	"log/slog"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/internal/account/audit"
	"github.com/isthmus-grid/isthmus/internal/account/metrics"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/daemon"
	"github.com/isthmus-grid/isthmus/internal/pki/enrol"
)

// Spec returns the daemon as daemon.Main runs it.
func Spec() daemon.Spec[Config] {
	return daemon.Spec[Config]{
		Name:  "isthmus-frontal",
		Usage: "stand at a site's gateway: for its helpers to the broker, and for nodes with no route out",
		Serve: serve,
	}
}

// Command returns the daemon as a command of a larger program.
func Command() *cli.Command { return daemon.Command(Spec()) }

func serve(ctx context.Context, cfg Config, log *slog.Logger, ready func(facts ...string)) error {
	creds, err := control.LoadCredentials(string(cfg.TLS.Cert), string(cfg.TLS.Key), string(cfg.TLS.CA))
	if err != nil {
		return err
	}
	if err := enrol.KeepRevoked(creds, string(cfg.TLS.Revoked)); err != nil {
		return err
	}
	f, err := New(cfg, creds, log)
	if err != nil {
		return err
	}
	if f.audit, err = audit.Open(cfg.Audit, creds.Identity().Key(), log); err != nil {
		return err
	}
	defer f.audit.Start()()
	daemon.OnChange(ctx, f.audit.NoteChange)
	facts, stop, err := metrics.Start(ctx, cfg.MetricsListen, f.metrics(creds), log)
	if err != nil {
		return err
	}
	defer stop()
	f.stopMetrics = stop
	return f.Serve(ctx, func(own ...string) { ready(append(own, facts...)...) })
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/cmd/internal/cmdline"
	"github.com/isthmus-grid/isthmus/internal/daemon"
	"github.com/isthmus-grid/isthmus/internal/printable"
)

// stateFolder is where the packages' units keep the daemons' state folders.
const stateFolder = "/var/lib/isthmus"

// drainCommand is "isthmus drain".
func drainCommand() *cli.Command {
	daemons := []string{"broker", "frontal", "proxy", "helper"}
	return &cli.Command{
		Name:      "drain",
		Usage:     "stop a daemon of this host from accepting new work, and wait until it has ended",
		ArgsUsage: strings.Join(daemons, "|"),
		Description: "A proxy hands its links to other proxies, a frontal carries its links until they end; both cut the remaining ones\n" +
			"after drain_grace; a link that is cut finds another path. Brokers and helpers have nothing to drain and end at\n" +
			"once. Only root and the daemon's own user may drain it. Interrupting this command does not stop the drain.\n" +
			"The status is 0 when the daemon has ended, and 1 when it has not or that is unknown.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "socket", Usage: "instead of a daemon's name: its admin `SOCKET` (the setting admin_socket)"},
			&cli.DurationFlag{Name: "wait", Value: 15 * time.Minute, Usage: "how long to wait for the daemon to end; 0s returns as soon as it drains"},
			&cli.BoolFlag{Name: "json", Usage: "print the remaining links as one object, about twice a second"},
			cmdline.VerboseFlag(),
		},
		Action: func(c *cli.Context) error {
			socket := c.String("socket")
			switch name := c.Args().First(); {
			case socket != "" && c.NArg() > 0 || socket == "" && c.NArg() != 1:
				return cmdline.Usage("drain: want one of " + strings.Join(daemons, ", ") + ", or --socket")
			case socket == "" && !slices.Contains(daemons, name):
				return cmdline.Usage(fmt.Sprintf("drain: %q: want one of %s, or --socket", name, strings.Join(daemons, ", ")))
			case socket == "":
				socket = filepath.Join(stateFolder, name, daemon.AdminSocketName)
			}
			if c.Duration("wait") < 0 {
				return cmdline.Usage("drain: --wait: want 0s or more")
			}
			err := drain(c.Context, c.App.Writer, socket, c.Duration("wait"), c.Bool("json"))
			if err == nil || errors.Is(err, errWaited) {
				return err
			}
			f := &cmdline.Failure{Cause: "drain: " + err.Error(), Next: "systemctl status 'isthmus-*'", Err: err, Verbose: c.Bool("verbose")}
			if errors.Is(err, errSilent) {
				f.Cause = fmt.Sprintf("drain: %s: %v: it is stopped or overloaded, and drains when it goes on", socket, err)
				f.Next += "; to end it at once: systemctl kill --signal=KILL UNIT"
			}
			return f
		},
	}
}

var (
	// errWaited says that the wait is over.
	errWaited = errors.New("the daemon is still draining and will continue")
	// errSilent says that the daemon has not confirmed the order.
	errSilent = errors.New("the daemon accepts the order and does not answer")
)

// drain gives the order and reports what is left until the daemon has ended.
func drain(ctx context.Context, w io.Writer, socket string, wait time.Duration, asJSON bool) error {
	start := time.Now()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if wait > 0 {
		bound := time.AfterFunc(wait, func() { cancel(errWaited) })
		defer bound.Stop()
	}
	silence := time.AfterFunc(cmdline.AnswerTime, func() { cancel(errSilent) })
	defer silence.Stop()
	var last daemon.Progress
	ordered := errors.New("the daemon drains")
	err := daemon.Drain(ctx, socket, func(p daemon.Progress) {
		silence.Stop()
		first, changed := last.Daemon == "", last.Left != p.Left || last.State != p.State
		last = p
		switch {
		case asJSON:
			line, err := json.Marshal(p)
			if err != nil {
				panic(err) // texts, numbers and a time
			}
			fmt.Fprintln(w, string(line))
		case terminal(os.Stdout) && p.State != daemon.StateEnded:
			fmt.Printf("\r%s\x1b[K", printable.Line(drainLine(p, time.Now()))) // w would escape it
		case first || changed && p.State != daemon.StateEnded:
			fmt.Fprintln(w, drainLine(p, time.Now()))
		}
		if wait == 0 {
			cancel(ordered)
		}
	})
	if !asJSON && terminal(os.Stdout) && last.Daemon != "" {
		fmt.Fprintln(w)
	}
	switch {
	case errors.Is(err, ordered):
		return nil
	case errors.Is(err, errWaited) && last.What != "":
		return fmt.Errorf("%w: %d %s left after %v", err, last.Left, last.What, wait)
	case err != nil:
		return err
	case asJSON:
		return nil
	}
	took := time.Since(start).Round(100 * time.Millisecond)
	if last.Cut > 0 {
		fmt.Fprintf(w, "%s has ended after %v; %d %s were cut, and find another path\n", last.Daemon, took, last.Cut, last.What)
		return nil
	}
	fmt.Fprintf(w, "%s has ended after %v; nothing was cut\n", last.Daemon, took)
	return nil
}

// drainLine describes a daemon's progress.
func drainLine(p daemon.Progress, now time.Time) string {
	line := fmt.Sprintf("%s (process %d) drains", p.Daemon, p.PID)
	if p.What == "" {
		return line
	}
	line += fmt.Sprintf(": %d %s left", p.Left, p.What)
	if !p.Until.IsZero() {
		line += fmt.Sprintf(", cut in %v", max(0, p.Until.Sub(now)).Round(time.Second))
	}
	return line
}

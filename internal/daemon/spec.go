package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
)

// Spec describes one daemon whose settings are a C, a struct as the package comment describes.
type Spec[C any] struct {
	// Name is the program's name, as in "isthmus-broker". It prefixes what the daemon writes to
	// stderr, and determines the prefix of its environment variables: ISTHMUS_BROKER_.
	Name string

	// Usage describes the daemon's purpose in one line.
	Usage string

	// Default holds the settings before any source is read. A field that is zero here takes its
	// default tag; most daemons leave Default empty.
	Default C

	// Serve does the daemon's work until ctx is done, and returns when every goroutine it started
	// has ended. Nil, and any error that wraps context.Canceled once ctx is done, mean a clean end.
	// Another error is printed and becomes exit status 1.
	//
	// Serve calls ready once it can be reached: that notifies systemd, and writes the line "ready"
	// to --ready-fd or --ready-file. Arguments follow on that line, as in
	// ready("listen=127.0.0.1:4711"), so that a test may listen on port 0. Calls after the first do
	// nothing; ready may be called from any goroutine.
	//
	// cfg belongs to Serve. log has the level and format of the settings. With [HooksOf] ctx, Serve
	// receives new settings, drains and hands over.
	Serve func(ctx context.Context, cfg C, log *slog.Logger, ready func(facts ...string)) error
}

// Common are the keys that every daemon has in addition to its own.
type Common struct {
	Log           Log           `yaml:"log" help:"What the daemon logs to standard error."`
	ShutdownGrace time.Duration `yaml:"shutdown_grace" default:"10s" min:"0s" help:"Time the daemon has to end after SIGTERM or SIGINT. After that, the daemon prints what still runs and exits with status 1. A second signal ends it at once."`
	DrainGrace    time.Duration `yaml:"drain_grace" default:"5m" min:"0s" help:"Time a daemon that drains (SIGUSR1), or that a successor has taken over from (SIGUSR2), waits for its links to end before it cuts them. A link that is cut finds another path and loses nothing."`
	AdminSocket   Path          `yaml:"admin_socket" example:"/run/isthmus/admin.sock" help:"Unix socket on which isthmus drain reaches this daemon; only root and the daemon's own user may use it. Empty: admin.sock in the service manager's state folder (STATE_DIRECTORY); without one there is none."`
}

// Log sets what a daemon logs, and how.
type Log struct {
	Level  string `yaml:"level" default:"info" enum:"debug,info,warn,error" help:"Minimum level of the lines to write."`
	Format string `yaml:"format" default:"text" enum:"text,json" help:"Format of a line: text for people, json for collectors."`
}

// whole is the content of a file: a daemon's own keys and the common ones.
type whole[C any] struct {
	Own    C      `yaml:",inline"`
	Common Common `yaml:",inline"`
}

// Exit statuses.
const (
	exitFailed = 1 // settings are invalid, or Serve failed
	exitUsage  = 2 // the command line is invalid
)

// exitError is an error with the process's exit status. A silent one has already been reported.
type exitError struct {
	err    error
	code   int
	silent bool
}

func (e *exitError) Error() string {
	if e.silent {
		return ""
	}
	return e.err.Error()
}
func (e *exitError) Unwrap() error { return e.err }
func (e *exitError) ExitCode() int { return e.code }

// Main runs the daemon with the process's arguments, environment and signals, and exits: 0 after a
// clean end or an --check without faults, 1 when the settings are invalid or Serve fails, 2 when
// the command line is invalid. It writes an error to stderr once, after the program's name.
func Main[C any](spec Spec[C]) {
	os.Exit(run(spec, os.Args, os.Stdout, os.Stderr))
}

// run is Main without the exit.
func run[C any](spec Spec[C], args []string, stdout, stderr io.Writer) int {
	cmd := Command(spec)
	app := &cli.App{
		Name:            spec.Name,
		Usage:           spec.Usage,
		UsageText:       cmd.UsageText,
		Flags:           cmd.Flags,
		Action:          cmd.Action,
		OnUsageError:    cmd.OnUsageError,
		HideHelpCommand: true,
		HideVersion:     true, // the command has its own --version
		Writer:          stdout,
		ErrWriter:       stderr,
		ExitErrHandler:  func(*cli.Context, error) {}, // reported below, once
	}
	err := app.Run(args)
	if err == nil {
		return 0
	}
	code := exitFailed
	if exit, ok := errors.AsType[*exitError](err); ok {
		code = exit.code
	}
	if text := err.Error(); text != "" {
		fmt.Fprintf(stderr, "%s: %s\n", spec.Name, text)
	}
	return code
}

// Command returns the daemon as a command, named after the last word of the program: "broker" for
// isthmus-broker. It lets one binary hold several daemons; the flags and the behaviour are those of
// [Main]. It panics when C is not a struct as the package comment describes. A Command runs once.
func Command[C any](spec Spec[C]) *cli.Command {
	root := mustSchema(reflect.TypeFor[whole[C]]())
	own := &ownFlags{}
	keys := newKeyFlags(root, envPrefix(spec.Name))
	return &cli.Command{
		Name:            ShortName(spec.Name),
		Usage:           spec.Usage,
		UsageText:       spec.Name + " [--config FILE] [--KEY VALUE]...",
		Flags:           append(own.flags(), keys.flags()...),
		HideHelpCommand: true,
		OnUsageError: func(_ *cli.Context, err error, _ bool) error {
			return &exitError{err: usageFault(err, append(own.flags(), keys.flags()...)), code: exitUsage}
		},
		Action: func(c *cli.Context) error {
			if extra := c.Args().First(); extra != "" {
				return &exitError{err: fmt.Errorf("%q is not expected here; settings are flags, see --help", extra), code: exitUsage}
			}
			return act(c, spec, root, own, keys)
		},
	}
}

// ShortName returns the last word of a program's name: "broker" for isthmus-broker. The sample file
// of the daemon and its systemd unit are named after it.
func ShortName(program string) string {
	return program[strings.LastIndex(program, "-")+1:]
}

func envPrefix(program string) string {
	return strings.ToUpper(strings.ReplaceAll(program, "-", "_")) + "_"
}

// act carries out the flags: one of the printing modes, or serving.
func act[C any](c *cli.Context, spec Spec[C], root *field, own *ownFlags, keys *keyFlags) error {
	stdout, stderr := c.App.Writer, c.App.ErrWriter
	if own.version {
		fmt.Fprintln(stdout, Version(spec.Name))
		return nil
	}
	file := own.file(spec.Name)
	read := func(all *whole[C], files bool) (Faults, error) {
		*all = whole[C]{Own: spec.Default}
		text, err := readFile(file)
		if err != nil {
			return nil, err
		}
		return load(root, reflect.ValueOf(all).Elem(), sources{
			file: file, text: text, env: os.LookupEnv, flags: keys.givenValues(), prefix: envPrefix(spec.Name), exists: !own.printConfig, files: files && !own.printConfig,
		}), nil
	}
	var all whole[C]
	faults, err := read(&all, true)
	if err != nil {
		return &exitError{err: err, code: exitFailed}
	}
	switch {
	case own.printConfig && len(faults.invalid()) == 0:
		_, err := stdout.Write(render(spec.Name, root, reflect.ValueOf(&all).Elem()))
		return err
	case own.check && len(faults) == 0:
		fmt.Fprintf(stdout, "%s: ok\n", sourceName(file))
		return nil
	case own.check:
		for _, f := range faults {
			fmt.Fprintln(stderr, f)
		}
		return &exitError{err: faults, code: exitFailed, silent: true}
	case len(faults) > 0:
		return &exitError{err: faults, code: exitFailed}
	}
	inherited, err := inherit()
	if err != nil {
		return &exitError{err: err, code: exitFailed}
	}
	activated, err := activated()
	if err != nil {
		return &exitError{err: err, code: exitFailed}
	}
	log, level := newLogger(all.Common.Log, stderr)
	hooks := newHooks(inherited, activated)
	l := &life{
		name: spec.Name, log: log, stderr: stderr, hooks: hooks,
		readyFD: own.readyFD, readyFile: own.readyFile, notifySocket: os.Getenv("NOTIFY_SOCKET"),
		adminSocket: string(all.Common.AdminSocket),
	}
	bounds := func(c Common) { l.grace, l.drainGrace = c.ShutdownGrace, c.DrainGrace }
	bounds(all.Common)
	effective := all
	l.reload = (&reloader[C]{
		root: root, effective: &effective, hooks: hooks, log: log, level: level, bounds: bounds,
		read: func() (next whole[C], err error) {
			// What is in files was looked at before the start; those that are read again have hooks that
			// do so. A certificate that has expired since is no reason to refuse a new limit.
			faults, err := read(&next, false)
			if err == nil && len(faults) > 0 {
				err = faults
			}
			return next, err
		},
	}).reload
	return live(c.Context, l, func(ctx context.Context, ready func(...string)) error {
		return spec.Serve(ctx, all.Own, log, ready)
	})
}

// Defaults returns the settings of a daemon without a configuration.
func Defaults[C any]() C {
	var all whole[C]
	mustSchema(reflect.TypeFor[whole[C]]()).setDefaults(reflect.ValueOf(&all).Elem())
	return all.Own
}

// Sample returns the commented file that --print-config writes for the default settings. The name
// is the program's, as in [Spec].
func Sample[C any](name string) []byte {
	root := mustSchema(reflect.TypeFor[whole[C]]())
	var all whole[C]
	root.setDefaults(reflect.ValueOf(&all).Elem())
	return render(name, root, reflect.ValueOf(&all).Elem())
}

// Parse decodes the text of a daemon's settings strictly, over the defaults and without the
// environment, and checks it as --check does except that the files it names need not exist. The
// error, a [Faults], lists every fault with file, line and column; file is the name to call the
// text by, and relative paths are relative to its folder.
func Parse[C any](file string, text []byte) (C, error) {
	root := mustSchema(reflect.TypeFor[whole[C]]())
	var all whole[C]
	faults := load(root, reflect.ValueOf(&all).Elem(), sources{file: file, text: text})
	if len(faults) > 0 {
		return all.Own, faults
	}
	return all.Own, nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/cmd/internal/cmdline"
	"github.com/isthmus-grid/isthmus/connhelper"
)

// helpersCommand is "isthmus-lab helpers": the helpers of several nodes in one process, for labs of
// hundreds of nodes.
func helpersCommand() *cli.Command {
	var files literals
	return &cli.Command{
		Name:  "helpers",
		Usage: "run the helpers of several nodes in one process",
		Flags: []cli.Flag{
			&cli.GenericFlag{Name: "config", Value: &files, Usage: "settings `FILE` of one helper; repeat for each"},
			&cli.IntFlag{Name: "ready-fd", Usage: "file descriptor that gets a line when all are ready"},
		},
		Action: func(c *cli.Context) error {
			if len(files) == 0 {
				return cmdline.Usage("helpers: give a --config for each helper")
			}
			return serveHelpers(c.Context, files, c.Int("ready-fd"))
		},
	}
}

// literals are the values of a flag that is repeated. In this program lists of numbers are separated by
// commas, which a file's name may have.
type literals []string

// Set implements flag.Value.
func (l *literals) Set(value string) error {
	*l = append(*l, value)
	return nil
}

// String implements flag.Value.
func (l *literals) String() string { return strings.Join(*l, " ") }

// serveHelpers runs a helper for each settings file until a signal ends them
// all, or one fails.
func serveHelpers(ctx context.Context, files []string, readyFD int) error {
	dir, err := os.MkdirTemp("", "helpers-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithCancel(ctx)
	errs := make([]error, len(files))
	var serving sync.WaitGroup
	defer serving.Wait()
	defer cancel()
	ready := make([]string, len(files))
	for i, file := range files {
		ready[i] = filepath.Join(dir, fmt.Sprint(i))
		serving.Go(func() {
			defer cancel()
			app := &cli.App{
				Name: "isthmus", Commands: []*cli.Command{connhelper.Command()},
				ExitErrHandler: func(*cli.Context, error) {}, Writer: os.Stdout, ErrWriter: os.Stderr,
			}
			errs[i] = app.RunContext(ctx, []string{"isthmus", app.Commands[0].Name, "--config", file, "--ready-file", ready[i]})
		})
	}
	if err := allThere(ctx, ready); err == nil && readyFD > 0 {
		to := os.NewFile(uintptr(readyFD), "ready")
		fmt.Fprintf(to, "ready helpers=%d\n", len(files))
		to.Close()
	}
	serving.Wait()
	return errors.Join(errs...)
}

// allThere waits until all files exist.
func allThere(ctx context.Context, files []string) error {
	for _, file := range files {
		for {
			if _, err := os.Stat(file); err == nil {
				break
			}
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(5 * time.Millisecond): // nothing announces it
			}
		}
	}
	return nil
}

package scale

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/isthmus-grid/isthmus/bench/runner"
	"github.com/isthmus-grid/isthmus/frontal"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/pki/ca"
	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/internal/sleep"
)

// dials is the number of connections made when all are registered.
const dials = 100

// measureFrontal fills a frontal with helpers, and these with processes.
func (o Options) measureFrontal(ctx context.Context) (*frontalFigures, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not done after %v", patience))
	defer cancel()
	dir, authority, err := folder()
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	b, brokerAt, err := o.start(ctx, partBroker, order{CA: filepath.Join(dir, "ca")})
	if err != nil {
		return nil, err
	}
	defer b.Stop()
	p, at, err := o.start(ctx, partFrontal, order{CA: filepath.Join(dir, "ca"), Broker: brokerAt})
	if err != nil {
		return nil, err
	}
	defer p.Stop()
	ask, done, err := dialAdmin(ctx, authority, at)
	if err != nil {
		return nil, err
	}
	defer done()
	if err := until(ctx, ask, func(s *frontal.Status) bool { return s.Broker.Up }); err != nil {
		return nil, err
	}
	f := new(frontalFigures)
	if f.before, err = useOf(p.PID()); err != nil {
		return nil, err
	}

	start := time.Now()
	helpers, err := o.startHelpers(ctx, dir, at)
	defer func() {
		for _, h := range helpers {
			h.Stop()
		}
	}()
	if err != nil {
		return nil, err
	}
	if err := until(ctx, ask, func(s *frontal.Status) bool { return len(s.Helpers) == o.Helpers }); err != nil {
		return nil, err
	}
	f.joined = time.Since(start)

	start = time.Now()
	for _, h := range helpers {
		if err := h.Tell(""); err != nil {
			return nil, err
		}
	}
	for _, h := range helpers {
		if _, err := h.Line(patience); err != nil {
			return nil, err
		}
	}
	if err := until(ctx, ask, func(s *frontal.Status) bool { return registered(s) == o.Processes }); err != nil {
		return nil, err
	}
	f.registered = time.Since(start)

	if err := helpers[0].Tell(""); err != nil {
		return nil, err
	}
	took, err := helpers[0].Line(patience)
	if err == nil {
		err = json.Unmarshal([]byte(took), &f.dials)
	}
	if err != nil {
		return nil, fmt.Errorf("dialling: %w", err)
	}
	f.after, err = useOf(p.PID())
	return f, err
}

func registered(s *frontal.Status) (n int) {
	for _, of := range s.Jobs {
		n += of
	}
	return n
}

// folder makes a folder with a CA, for helpers that run as nobody.
func folder() (string, *ca.CA, error) {
	dir, err := os.MkdirTemp("", "isthmus-scale-")
	if err != nil {
		return "", nil, err
	}
	authority, err := ca.Create(filepath.Join(dir, "ca"), "scale", time.Hour)
	if err == nil && os.Geteuid() == 0 {
		err = filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
			if err != nil {
				return err
			}
			return os.Chown(path, nobody, nobody)
		})
	}
	if err != nil {
		os.RemoveAll(dir)
		return "", nil, err
	}
	return dir, authority, nil
}

// startHelpers starts the processes that contain the helpers and their processes. It also returns
// those that started with an error.
func (o Options) startHelpers(ctx context.Context, dir, at string) (all []*runner.Process, err error) {
	key, err := jobkey.New("scale")
	if err != nil {
		return nil, err
	}
	for first := 0; first < o.Helpers; first += perProcess {
		n := min(perProcess, o.Helpers-first)
		// Ranks are divided as evenly as possible, without a remainder.
		from, to := o.Processes*first/o.Helpers, o.Processes*(first+n)/o.Helpers
		h, _, err := o.start(ctx, partHelpers, order{
			CA: filepath.Join(dir, "ca"), Frontal: at, Job: key.String(), Dir: dir,
			First: first, Helpers: n, Processes: to - from, Ranks: from, Dials: dials,
		})
		if err != nil {
			return all, err
		}
		all = append(all, h)
	}
	return all, nil
}

// dialAdmin makes an admin's session with the frontal.
func dialAdmin(ctx context.Context, authority *ca.CA, at string) (func(context.Context) (*frontal.Status, error), func(), error) {
	creds, err := authority.Credentials(control.Identity{Role: control.RoleAdmin, Name: "bench"})
	if err != nil {
		return nil, nil, err
	}
	e := control.NewEndpoint(creds, slog.New(slog.DiscardHandler), nil)
	s, err := e.Dial(ctx, control.DialConfig{Addr: at, Role: control.RoleFrontal})
	if err != nil {
		e.Close()
		return nil, nil, err
	}
	client := controlpb.NewAdminClient(s.Conn())
	ask := func(ctx context.Context) (*frontal.Status, error) {
		r, err := client.Status(ctx, &controlpb.StatusRequest{})
		if err != nil {
			return nil, control.FromStatus(err)
		}
		st := new(frontal.Status)
		return st, json.Unmarshal(r.Json, st)
	}
	return ask, func() { s.Close(); e.Close() }, nil
}

// until polls the frontal's status until ok returns true.
func until(ctx context.Context, ask func(context.Context) (*frontal.Status, error), ok func(*frontal.Status) bool) error {
	for {
		s, err := ask(ctx)
		if err != nil {
			return err
		}
		if ok(s) {
			return nil
		}
		if err := sleep.For(ctx, 50*time.Millisecond); err != nil {
			return fmt.Errorf("%w: %d helpers and %d processes are there", err, len(s.Helpers), registered(s))
		}
	}
}

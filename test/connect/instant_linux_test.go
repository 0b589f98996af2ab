//go:build system

package connect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/link"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// Two processes that dial each other at the same instant end with exactly one
// link, over which each message arrives once; 30 times over every kind of
// path between sites, or as often as ISTHMUS_TEST_REPEATS says.
func TestBothDialAtOnce(t *testing.T) {
	const atOnce = 10
	repeats := 30
	if text := os.Getenv("ISTHMUS_TEST_REPEATS"); text != "" {
		if _, err := fmt.Sscan(text, &repeats); err != nil {
			t.Fatalf("ISTHMUS_TEST_REPEATS: %v", err)
		}
	}
	w := newWorld(t, labtest.SiteOpen+labtest.SiteClosed+labtest.SiteShut+labtest.SiteHidden, grid.Config{})
	for _, way := range labtest.Ways {
		if way.From == "closed/n1" && way.Path == "port-range" {
			continue // dials as direct does
		}
		t.Run(way.From+" and "+way.To, func(t *testing.T) {
			w := w.sub(t)
			for range (repeats + atOnce - 1) / atOnce {
				var pairs sync.WaitGroup
				for range atOnce {
					j := w.JoinPair(way.From, way.To)
					pairs.Go(func() {
						if err := dialAtOnce(w.Ctx, j); err != nil {
							t.Error(err)
						}
					})
					defer j.A.End(t)
					defer j.B.End(t)
				}
				pairs.Wait()
				if t.Failed() {
					return
				}
			}
		})
	}
}

// dialAtOnce makes both ends dial together and checks the result.
func dialAtOnce(ctx context.Context, j *labtest.Pair) error {
	var start, connected sync.WaitGroup
	var errs [2]error
	start.Add(1)
	for i, m := range []*labtest.Member{j.A, j.B} {
		connected.Go(func() {
			start.Wait()
			errs[i] = m.Mesh.Connect(ctx, uint32(1-i))
		})
	}
	start.Done()
	connected.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	near, far := <-j.A.Links, <-j.B.Links // Connect has returned, so they exist
	defer near.Conn.Close()
	defer far.Conn.Close()
	if near.Dialled == far.Dialled {
		return fmt.Errorf("the ends hold different carriers: %v (dialled %v) and %v (dialled %v)", near.Path, near.Dialled, far.Path, far.Dialled)
	}
	if err := oneMessageEach(near, far); err != nil {
		return fmt.Errorf("%v: %w", near.Path, err)
	}
	if n := len(j.A.Links) + len(j.B.Links); n > 0 {
		return fmt.Errorf("%d links too many", n)
	}
	return nil
}

// oneMessageEach sends one message in each direction and reads to the end of both.
func oneMessageEach(near, far *link.Link) error {
	for _, l := range []*link.Link{near, far} {
		l.Conn.SetDeadline(time.Now().Add(30 * time.Second))
		if _, err := fmt.Fprintf(l.Conn, "to rank %d", l.Peer.Rank); err != nil {
			return err
		}
		if err := l.Conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
			return err
		}
	}
	for rank, l := range []net.Conn{near.Conn, far.Conn} {
		got, err := io.ReadAll(l)
		if want := fmt.Sprintf("to rank %d", rank); string(got) != want || err != nil {
			return fmt.Errorf("rank %d got %q (%v), want %q", rank, got, err, want)
		}
	}
	return nil
}

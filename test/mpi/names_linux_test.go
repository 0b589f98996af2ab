//go:build system

package mpi

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// Two separately started jobs, at two sites that permit nothing inbound, find each other by a name
// and compute together; and the name lives and dies with its publisher, regardless of the daemons.
func TestNamesAcrossJobs(t *testing.T) {
	t.Parallel() // most of it is waiting
	w := labtest.NewWorld(t, labtest.SiteClosed+"  - {name: shed, preset: no-route/egress-443, nodes: 1}\n", grid.Config{
		Settings: map[string]map[string]any{"broker": {"store": filepath.Join(t.TempDir(), "broker.db")}},
	})

	t.Run("several ranks", func(t *testing.T) {
		var servers, clients string
		var both sync.WaitGroup
		both.Go(func() {
			servers = w.RunExample(t, []string{"closed/n1", "closed/n2"}, 2, "rendezvous", "--serve", "the sum")
		})
		both.Go(func() {
			clients = w.RunExample(t, []string{"shed/n1"}, 2, "rendezvous", "--join", "the sum")
		})
		both.Wait()
		if want := "accepted a job of 2; 1 greeted me; the ranks of all 6 add up to 15\n"; !strings.Contains(servers, want) {
			t.Errorf("%q, want %q", servers, want)
		}
		if want := "connected to a job of 4; 2 greeted me; the ranks of all 6 add up to 15\n"; !strings.Contains(clients, want) {
			t.Errorf("%q, want %q", clients, want)
		}
	})

	t.Run("daemons start anew", func(t *testing.T) {
		w := w.Sub(t)
		const rounds = 3
		server := w.StartSolo("closed/n1", "--serve", "lasting", "--times", fmt.Sprint(rounds))
		w.AwaitNames(1)
		for _, restarted := range [rounds][]string{{"broker"}, {"broker", "frontal closed"}, {"broker", "frontal closed", "helper closed/n1"}} {
			for _, name := range restarted {
				w.Daemon(name).Kill()
			}
			for _, name := range restarted {
				if err := w.Daemon(name).Start(w.Ctx); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.Settled(w.Ctx); err != nil {
				t.Fatal(err)
			}
			w.AwaitNames(1)
			rival := w.StartSolo("shed/n1", "--serve", "lasting")
			if err := rival.Wait(); err == nil || !strings.Contains(rival.Out.String(), "belongs to rank 0 of job solo-") {
				t.Errorf("after a restart of %v the name is free: %v\n%s", restarted, err, rival.Out.String())
			}
			client := w.StartSolo("shed/n1", "--join", "lasting")
			if err := client.Wait(); err != nil {
				t.Errorf("after a restart of %v: %v\n%s", restarted, err, client.Out.String())
			}
		}
		if err := server.Wait(); err != nil {
			t.Errorf("%v\n%s", err, server.Out.String())
		}
		w.AwaitNames(0)
	})

	// The broker restarts while the gateway of the publisher is down, so that no daemon sends it
	// the name: it has it in its store.
	t.Run("the broker remembers", func(t *testing.T) {
		w := w.Sub(t)
		server := w.StartSolo("closed/n1", "--serve", "kept")
		w.AwaitNames(1)
		early := w.StartSolo("shed/n1", "--serve", "kept")
		if err := early.Wait(); err == nil || !strings.Contains(early.Out.String(), "belongs to rank 0 of job solo-") {
			t.Errorf("the name is free before: %v\n%s", err, early.Out.String())
		}
		for _, name := range []string{"frontal closed", "broker"} {
			w.Daemon(name).Kill()
		}
		if err := w.Daemon("broker").Start(w.Ctx); err != nil {
			t.Fatal(err)
		}
		w.Until("the other site to be back", func() bool {
			for _, site := range w.Figure("broker", "sites").([]any) {
				if s := site.(map[string]any); s["profile"].(map[string]any)["site"] == "shed" && s["connected"] == true {
					return true
				}
			}
			return false
		})
		rival := w.StartSolo("shed/n1", "--serve", "kept")
		if err := rival.Wait(); err == nil || !strings.Contains(rival.Out.String(), "belongs to rank 0 of job solo-") {
			t.Errorf("the name is free: %v\n%s", err, rival.Out.String())
		}
		if err := w.Daemon("frontal closed").Start(w.Ctx); err != nil {
			t.Fatal(err)
		}
		if err := w.Settled(w.Ctx); err != nil {
			t.Fatal(err)
		}
		client := w.StartSolo("shed/n1", "--join", "kept")
		if err := client.Wait(); err != nil {
			t.Errorf("%v\n%s", err, client.Out.String())
		}
		if err := server.Wait(); err != nil {
			t.Errorf("%v\n%s", err, server.Out.String())
		}
	})

	t.Run("the publisher is killed", func(t *testing.T) {
		w := w.Sub(t)
		server := w.StartSolo("closed/n1", "--serve", "mortal")
		w.AwaitNames(1)
		if err := server.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		server.Wait()
		w.AwaitNames(0)
		client := w.StartSolo("shed/n1", "--join", "mortal", "--wait", "0")
		err := client.Wait()
		if want := "name is not published: \"mortal\"; rank 0 of job solo-"; err == nil || !strings.Contains(client.Out.String(), want) || !strings.Contains(client.Out.String(), "has died") {
			t.Errorf("%v\n%s\nwant %s", err, client.Out.String(), want)
		}
	})
}

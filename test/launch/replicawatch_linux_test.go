//go:build system

package launch

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/isthmus-grid/isthmus/internal/ipc/local"
	"github.com/isthmus-grid/isthmus/internal/job/ranks"
	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// deathsKey marks, in the environment, a process as one of deaths, and says how many deaths it
// waits for.
const deathsKey = "ISTHMUS_TEST_DEATHS"

// deaths is a process of a job with replicas: it registers with its helper by its process number, and ends
// when it was told of as many deaths.
func deaths() error {
	var n [5]int
	for i, name := range []string{ranks.EnvRank, ranks.EnvSize, ranks.EnvReplica, ranks.EnvReplicas, deathsKey} {
		var err error
		if n[i], err = strconv.Atoi(os.Getenv(name)); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	rank, size, replica, replicas, want := n[0], n[1], n[2], n[3], n[4]
	key, err := jobkey.FromDescriptor(os.Getenv(jobkey.EnvKeyFD))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), labtest.Patience)
	defer cancel()
	dead := make(chan uint32, size*replicas)
	client := local.NewClient(local.ClientConfig{
		Socket: os.Getenv(ranks.EnvHelper), Process: overlay.ProcessName{Job: key.ID(), Rank: uint32(replica*size + rank)}, Auth: key.Auth(),
		Dead: func(all []uint32, _ string) {
			for _, process := range all {
				dead <- process
			}
		},
	})
	var serving sync.WaitGroup
	defer serving.Wait()
	defer client.Close()
	serving.Go(func() { client.Serve(ctx) })
	if _, err := client.Ready(ctx); err != nil {
		return err
	}
	fmt.Println("registered")
	var all []uint32
	for len(all) < want {
		select {
		case process := <-dead:
			all = append(all, process)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	slices.Sort(all)
	fmt.Printf("dead: %v\n", all)
	return nil
}

// Processes of a job with replicas are told which others died, by process number: those of a host that is
// silent, and those that a pinned rank 0 never had.
func TestReplicasAreTold(t *testing.T) {
	t.Parallel() // most of it is waiting
	labtest.NeedLab(t)
	w := newWorld(t, labtest.SiteOpen+labtest.SiteClosed, threeSites())
	w.AwaitHosts(4)
	self := enterableSelf(t)
	begin := func(deaths int, words ...string) *labtest.Background {
		words = append([]string{"run", "--replicas", "2", "--installed", "--env", fmt.Sprintf("%s=%d", deathsKey, deaths)}, words...)
		return w.Begin(w.Isthmus(append(words, self)...), "] registered\n", 2)
	}
	ends := func(b *labtest.Background, want ...string) {
		t.Helper()
		if status := b.ExitStatus(w.World); status != 0 {
			t.Errorf("status %d", status)
		}
		for _, line := range want {
			if strings.Count(b.Output(), line+"\n") != 1 {
				t.Errorf("the job wrote not once %q:\n%s", line, b.Output())
			}
		}
	}
	ends(begin(1, "-n", "2", "--pin-rank0"), "[open/n1:0] dead: [2]", "[1] dead: [2]")
	w.AwaitNoJobs()

	b := begin(2, "--hosts", "n1@closed:2,n2@open:2", "--hang", "1s")
	w.Until("all processes to run", func() bool {
		out, err := w.Isthmus("ps", "--json").Output()
		return err == nil && strings.Contains(string(out), `"live":[[0,1],[0,1]]`)
	}, b.Output)
	w.Daemon("helper closed/n1").Kill()
	ends(b, "[0] dead: [0 1]", "[1] dead: [0 1]")
	if err := w.Daemon("helper closed/n1").Start(w.Ctx); err != nil {
		t.Fatal(err)
	}
	w.AwaitNoJobs()
}

package nodeservice

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/testkit"
	"github.com/isthmus-grid/isthmus/internal/testload"
	"github.com/isthmus-grid/isthmus/launch/nodeservice/nodepb"
)

// Submitters, some concurrent, each of which does a random part of what a submitter does, cancels,
// disconnects, or continues after disconnecting: at the end no reservation, process or folder is left.
func TestRandomRuns(t *testing.T) {
	seed, workers, runs := uint64(1), uint64(4), 4
	if testload.Full() {
		seed, workers, runs = rand.Uint64(), 8, 25
	}
	t.Logf("seed %d", seed)
	h := newHost(t, func(o *Options) {
		o.Policy.Jobs, o.Policy.Lease = 6, 300*time.Millisecond
		o.Orphan = 20 * time.Millisecond
	})
	pids := filepath.Join(t.TempDir(), "pids")
	script := fmt.Sprintf("echo $$ >>%s; cat in; sleep 1000 & echo $! >>%[1]s; [ $ISTHMUS_RANK = 0 ] || exit 3; read word; kill $!; echo $word >out", pids)
	var all sync.WaitGroup
	for worker := range workers {
		rng := rand.New(rand.NewPCG(seed, worker))
		all.Go(func() {
			for range runs {
				randomRun(h, rng, script)
			}
		})
	}
	all.Wait()
	h.empty()
	list, _ := os.ReadFile(pids) // it does not exist if no run came that far
	for _, pid := range strings.Fields(string(list)) {
		testkit.Until(h.t, "process "+pid+" to end", func() bool { return !runsStill(pid, pids) })
	}
	if n, err := h.count(); n != 0 || err != nil {
		t.Errorf("%d reservations are left: %v", n, err)
	}
}

// runsStill reports whether a process whose number a script has written to the file pids still runs. The number
// may have become another process's; one that has only not been waited for has no command line.
func runsStill(pid, pids string) bool {
	words, _ := os.ReadFile("/proc/" + pid + "/cmdline")
	return strings.Contains(string(words), pids) || strings.HasPrefix(string(words), "sleep\x00")
}

// randomRun simulates one submitter.
func randomRun(h *host, rng *rand.Rand, script string) {
	c := h.talk()
	say := func(m *nodepb.ToNode) func() { return func() { c.say(m) } }
	start := func() {
		c.say(&nodepb.ToNode{Say: &nodepb.ToNode_Start{Start: &nodepb.Start{
			Hold: c.hold, JobKey: c.job.String(), Size: 2, Argv: nodepb.Bytes([]string{"sh", "-c", script}), Input: true, Outputs: nodepb.Bytes([]string{"out"}),
			Processes: []*nodepb.Process{{Rank: 0}, {Rank: 1}},
		}}})
	}
	if c.ask(1+rng.IntN(4)).GetOk() == nil {
		c.hang()
		return // all places are taken
	}
	// Answers are received in the background, and acknowledged or not.
	lazy := rng.IntN(3) == 0
	var listeners sync.WaitGroup
	listening := func() {
		stream := *c
		listeners.Go(func() { // ends with the stream
			for m := stream.hear(); m != nil; m = stream.hear() {
				if m.Event != 0 && !lazy {
					stream.ack(m.Event)
				}
			}
		})
	}
	listening()
	defer func() {
		c.hang()
		listeners.Wait()
	}()
	whole := !lazy
	for _, step := range []func(){
		func() { c.manifest("in", []byte("input")) },
		say(&nodepb.ToNode{Say: &nodepb.ToNode_Renew{Renew: &nodepb.Renew{Hold: c.hold}}}),
		start, start,
		c.commit,
		say(&nodepb.ToNode{Say: &nodepb.ToNode_Input{Input: &nodepb.Input{Data: []byte("word\n"), End: true}}}),
	} {
		switch rng.IntN(12) {
		case 0:
			return
		case 1:
			c.cancel()
			<-c.pipe.ctx.Done()
			return
		case 2:
			c.hang()
			c.open()
			c.say(&nodepb.ToNode{Say: &nodepb.ToNode_Attach{Attach: &nodepb.Attach{Key: c.id, Hold: c.hold}}})
			listening()
		case 3: // it omits something
			whole = false
			continue
		case 4:
			c.say(&nodepb.ToNode{Say: &nodepb.ToNode_Signal{Signal: &nodepb.Signal{Name: "HUP"}}})
		}
		step()
	}
	if whole && rng.IntN(2) == 0 {
		<-c.pipe.ctx.Done() // until the stream ends
	}
}

//go:build system

package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/lab"
	"github.com/isthmus-grid/isthmus/launch/nodeservice"
	"github.com/isthmus-grid/isthmus/launch/nodeservice/nodepb"
	"github.com/isthmus-grid/isthmus/mpilib"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// mournKey marks, in the environment, a process as a rank of mourn: the ranks that
// will be lost, as "3" or "3,4".
const mournKey = "ISTHMUS_TEST_MOURN"

// mourn is a rank: it waits for messages that never arrive, from ranks that will be lost, until it
// is notified of all losses, and continues with the remaining ranks.
func mourn() error {
	var doomed []int
	for text := range strings.SplitSeq(os.Getenv(mournKey), ",") {
		var r int
		if _, err := fmt.Sscan(text, &r); err != nil {
			return err
		}
		doomed = append(doomed, r)
	}
	ctx, cancel := context.WithTimeout(context.Background(), labtest.Patience)
	defer cancel()
	w, err := mpilib.Init(ctx)
	if err != nil {
		return err
	}
	c := w.Comm()
	if err := mpilib.Barrier(ctx, c); err != nil {
		return err
	}
	fmt.Printf("rank %d is there\n", c.Rank())
	for _, r := range doomed {
		_, err := mpilib.Recv(ctx, c, []int{0}, r, 7)
		var failed *mpilib.ProcFailedError
		if !errors.As(err, &failed) {
			return fmt.Errorf("the receive from rank %d ended with %w", r, err)
		}
		fmt.Printf("rank %d lost %v: %v\n", c.Rank(), failed.Ranks, err)
	}
	left, err := c.Shrink(ctx)
	if err != nil {
		return err
	}
	sum := []int{0}
	if err := mpilib.Allreduce(ctx, left, []int{1}, sum, mpilib.Sum); err != nil {
		return err
	}
	fmt.Printf("rank %d goes on with %d\n", c.Rank(), sum[0])
	if err := w.Finalize(ctx); err != nil && !errors.Is(err, mpilib.ErrProcFailed) {
		return err
	}
	return nil
}

// pings waits until a program of one node has an answer of another's node service.
func (w *world) pings(from, to string) {
	w.T.Helper()
	conn, err := nodeservice.Connect(w.Socket(from))
	if err != nil {
		w.T.Fatal(err)
	}
	defer conn.Close()
	node, err := overlay.ParseNodeID(to)
	if err != nil {
		w.T.Fatal(err)
	}
	w.Until(fmt.Sprintf("%s to reach the node service of %s", from, to), func() bool {
		_, err = nodepb.NewNodeServiceClient(conn).Ping(nodeservice.At(w.Ctx, node), &nodepb.PingRequest{})
		return err == nil
	}, func() string { return err.Error() })
}

// The nodes of a job watch each other: the end of one, which no socket reveals, is reported to all
// ranks elsewhere long before their links are given up; a helper that is stopped for 3 s counts as
// alive; and neither needs a broker or a frontal.
func TestNodesOfAJobWatchEachOther(t *testing.T) {
	w := newWorld(t, labtest.SiteOpen+labtest.SiteClosed, labtest.LaunchConfig(map[string]any{"jobs": 1, "processes": 4}))
	key := labtest.NewKey(t, "mourn")
	self := enterableSelf(t)
	nodes := []*nodepb.NodeOfJob{
		{Node: "open/n1", Ranks: []uint32{0, 1}},
		{Node: "closed/n1", Ranks: []uint32{2}},
		{Node: "closed/n2", Ranks: []uint32{3, 4}},
	}
	var talks []*labtest.Talk
	for _, n := range nodes { // all are booked before any starts
		c := w.Talk("open/n1", n.Node, key)
		c.Ask(len(n.Ranks))
		talks = append(talks, c)
	}
	for i, n := range nodes {
		s := &nodepb.Start{Argv: nodepb.Bytes([]string{self}), Environment: nodepb.Bytes([]string{mournKey + "=3,4"}), Size: 5, Nodes: nodes}
		for _, r := range n.Ranks {
			s.Processes = append(s.Processes, &nodepb.Process{Rank: r})
		}
		talks[i].Start(s)
	}
	for i, words := range []string{"rank 0 is there", "rank 2 is there", "rank 3 is there"} {
		talks[i].HearUntil(words)
	}

	// The time of the stall is the matter here.
	still := w.Daemon("helper closed/n1").PID()
	if err := syscall.Kill(still, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	time.Sleep(3 * time.Second)
	if err := syscall.Kill(still, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}

	// Sessions with a stopped helper end, and are set up again.
	talks[1] = talks[1].Reattach("open/n1", nodes[1].Node)
	for _, from := range nodes {
		for _, to := range nodes {
			w.pings(from.Node, to.Node)
		}
	}

	w.Daemon("broker").Kill()
	w.Daemon("frontal closed").Kill()
	if _, err := w.Lab.Host("closed/n2").Drop(lab.Flow{}); err != nil { // so that no word gets out
		t.Fatal(err)
	}
	w.Daemon("helper closed/n2").Kill()
	said := ""
	for i, survivors := range [][]int{{0, 1}, {2}} {
		all := talks[i].Listen()
		for _, r := range survivors {
			if !strings.Contains(all.Out, fmt.Sprintf("rank %d goes on with 3\n", r)) || all.Exits[uint32(r)].GetStatus() != 0 {
				t.Errorf("rank %d: %v; its node wrote:\n%s%s", r, all.Exits[uint32(r)], all.Out, all.Err)
			}
		}
		said += all.Out
	}
	if !strings.Contains(said, "node closed/n2 is taken for dead") { // the others may hear it from ranks that were told
		t.Errorf("nobody was told by its helper:\n%s", said)
	}
	for _, helper := range []string{"helper open/n1", "helper closed/n1"} {
		log := w.Daemon(helper).Log()
		if n := strings.Count(log, "host failed"); n != 1 {
			t.Errorf("%s took %d hosts for dead, want 1:\n%s", helper, n, log)
		}
	}
}

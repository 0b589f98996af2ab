//go:build system

package launch

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/launch/nodeservice"
	"github.com/isthmus-grid/isthmus/launch/nodeservice/nodepb"
	"github.com/isthmus-grid/isthmus/launch/stage"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

func TestNodeServiceConversation(t *testing.T) {
	w := newWorld(t, labtest.SiteClosed+labtest.SiteShut, labtest.LaunchConfig(map[string]any{"jobs": 2, "processes": 4}))
	c := w.Talk("closed/n1", "shut/n1", labtest.NewKey(t, "talk"))
	if ok := c.Ask(8); ok.Processes != 4 {
		t.Errorf("%d processes are granted, want the 4 that are offered", ok.Processes)
	}
	script := []byte("#!/bin/sh\nread word\necho rank $ISTHMUS_RANK of $ISTHMUS_SIZE in $PLACE heard $word\necho this is wrong >&2\necho result >result.$ISTHMUS_RANK\nexit $ISTHMUS_RANK\n" + strings.Repeat("#\n", stage.ChunkSize))
	if n := c.StageFile("bin/script", script); n != 3 {
		t.Errorf("%d chunks of a new file are missing, want 3", n)
	}
	c.Start(&nodepb.Start{
		Argv: nodepb.Bytes([]string{"bin/script"}), Environment: nodepb.Bytes([]string{"PLACE=shut"}), Size: 5, Input: true,
		Processes: []*nodepb.Process{{Rank: 0}, {Rank: 3}}, Outputs: nodepb.Bytes([]string{"result.*", "nothing"}),
		Limits: []*nodepb.Limit{{Name: "nofile", Value: 99}},
	})
	c.Say(&nodepb.ToNode{Say: &nodepb.ToNode_Input{Input: &nodepb.Input{Data: []byte("hello\n"), End: true}}})
	all := c.Listen()
	if !strings.Contains(all.Out, "rank 0 of 5 in shut heard hello\n") || !strings.Contains(all.Out, "rank 3 of 5 in shut heard\n") || all.Err != "this is wrong\nthis is wrong\n" {
		t.Errorf("the ranks said %q and %q", all.Out, all.Err)
	}
	if fmt.Sprint(all.Exits[0].GetStatus(), all.Exits[3].GetStatus()) != "0 3" {
		t.Errorf("the ranks ended with %v", all.Exits)
	}
	if all.Files["result.0"] != "result\n" || all.Files["result.3"] != "result\n" || !strings.Contains(all.Files["nothing"], "no such file") {
		t.Errorf("the files are %q", all.Files)
	}
	if len(all.Over.Ended) > 0 {
		t.Errorf("it was ended: %s", all.Over.Ended)
	}
}

// A conversation continues when the relay dies under it, and when its stream breaks it can be
// resumed.
func TestNodeServiceOutlivesItsPath(t *testing.T) {
	cfg := labtest.LaunchConfig(map[string]any{"jobs": 1, "processes": 1})
	cfg.Proxies = []string{"public/p1", "public/p2"}
	w := newWorld(t, labtest.SiteClosed+labtest.SiteShut, cfg)
	c := w.Talk("closed/n1", "shut/n1", labtest.NewKey(t, "path"))
	c.Ask(1)
	c.Start(&nodepb.Start{Argv: nodepb.Bytes([]string{"sh", "-c", "while read word; do echo heard $word; done; exit 7"}), Input: true})
	said := 0
	tell := func(word string) {
		c.Say(&nodepb.ToNode{Say: &nodepb.ToNode_Input{Input: &nodepb.Input{Offset: uint64(said), Data: []byte(word + "\n")}}})
		said += len(word) + 1
	}
	tell("one")
	event, text := c.HearOutput()
	used := "proxy p1"
	if n, _ := w.Daemon("proxy p2").Descriptors(); strings.Contains(w.Daemon("helper closed/n1").Log(), "relay through p2") {
		t.Logf("p2 relays, with %d descriptors", n)
		used = "proxy p2"
	}
	w.Daemon(used).Kill()
	tell("two")
	if _, text2 := c.HearOutput(); text+text2 != "heard one\nheard two\n" {
		t.Errorf("heard %q and then %q", text, text2)
	}
	c.End()
	c = c.Reopen("closed/n2", "shut/n1") // the same user from another node is another
	c.Say(&nodepb.ToNode{Say: &nodepb.ToNode_Attach{Attach: &nodepb.Attach{Key: c.ID, Hold: c.Hold, Have: event}}})
	labtest.Expect(c, (*nodepb.ToSubmitter).GetRefused)
	c = c.Reopen("closed/n1", "shut/n1")
	c.Say(&nodepb.ToNode{Say: &nodepb.ToNode_Attach{Attach: &nodepb.Attach{Key: c.ID, Hold: c.Hold, Have: event}}})
	if a := labtest.Expect(c, (*nodepb.ToSubmitter).GetAttached); !a.Committed || a.Taken != uint64(said) {
		t.Errorf("attached: %v", a)
	}
	c.Say(&nodepb.ToNode{Say: &nodepb.ToNode_Input{Input: &nodepb.Input{Offset: uint64(said), End: true}}})
	if all := c.Listen(); all.Out != "heard two\n" || all.Exits[0].GetStatus() != 7 {
		t.Errorf("%+v", all)
	}
	if err := w.Daemon(used).Start(w.Ctx); err != nil {
		t.Error(err)
	}
}

// A reservation that was not started ends with the helper, as do its files; and the next helper
// accepts jobs again.
func TestNodeServiceHelperKilled(t *testing.T) {
	w := newWorld(t, labtest.SiteClosed+labtest.SiteShut, labtest.LaunchConfig(map[string]any{"jobs": 1, "processes": 1}))
	c := w.BookedTalk("closed/n1", "shut/n1", "killed")
	c.StageFile("input", []byte("content"))
	w.Daemon("helper shut/n1").Kill()
	if err := w.Daemon("helper shut/n1").Start(w.Ctx); err != nil {
		t.Fatal(err)
	}
	w.nothingOf("shut/n1")
	w.AwaitLog("helper shut/n1", "joined")
	c.End()
	w.BookedTalk("closed/n1", "shut/n1", "after").End()
}

// An unreachable node causes an error with the reason, and only permitted users may list and end
// jobs.
func TestNodeServiceCalls(t *testing.T) {
	cfg := labtest.LaunchConfig(map[string]any{"jobs": 2, "processes": 1})
	cfg.Settings["helper closed/n2"] = map[string]any{"offer": map[string]any{"jobs": 0}}
	w := newWorld(t, labtest.SiteClosed+labtest.SiteShut, cfg)
	conn, err := nodeservice.Connect(w.Socket("closed/n2"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	g, submitters := nodepb.NewNodeServiceClient(conn), nodepb.NewSubmittersClient(conn)
	shut := nodeservice.At(w.Ctx, overlay.NodeID{Site: "shut", Name: "n1"})
	p, err := g.Ping(shut, &nodepb.PingRequest{Payload: []byte("to and fro")})
	if err != nil || string(p.Payload) != "to and fro" || p.Jobs != 0 {
		t.Fatalf("%v, %v", p, err)
	}
	for _, c := range []struct {
		node overlay.NodeID
		want string
	}{
		{overlay.NodeID{Site: "nowhere", Name: "n1"}, "the node service of nowhere/n1"},
		{overlay.NodeID{Site: "shut", Name: "UPPER/CASE"}, "allowed are"},
	} {
		ctx, cancel := context.WithTimeout(nodeservice.At(w.Ctx, c.node), 2*time.Second)
		_, err := g.Ping(ctx, &nodepb.PingRequest{})
		cancel()
		if err == nil || !strings.Contains(err.Error(), c.want) && !strings.Contains(err.Error(), "DeadlineExceeded") {
			t.Errorf("a ping to %v: %v", c.node, err)
		}
	}
	c := w.Talk("closed/n2", "shut/n1", labtest.NewKey(t, "calls"))
	c.Ask(1)
	c.Start(&nodepb.Start{Argv: nodepb.Bytes([]string{"sh", "-c", "echo up; sleep 1000"})})
	c.HearOutput()
	list, err := g.Jobs(shut, &nodepb.JobsRequest{})
	if err != nil || len(list.Jobs) != 1 || list.Jobs[0].Job != string(c.Key.ID()) || list.Jobs[0].By != "closed/n2" || len(list.Jobs[0].Argv) != 3 {
		t.Errorf("the jobs are %v, %v", list, err)
	}
	far, err := g.Measure(shut, &nodepb.MeasureRequest{Nodes: []string{"closed/n1", "shut/n1"}})
	if err != nil || len(far.Distances) != 2 || far.Distances[0].LatencyNs < uint64(4*time.Millisecond) || far.Distances[1].LatencyNs >= uint64(time.Millisecond) {
		t.Errorf("shut/n1 measures %v, %v", far, err)
	}
	if r, err := g.Kill(shut, &nodepb.KillRequest{Job: string(c.Key.ID())}); err != nil || r.Reservations != 1 {
		t.Errorf("kill: %v, %v", r, err)
	}
	if all := c.Listen(); all.Exits[0].GetSignal() != "TERM" || string(all.Over.Ended) != "ended by root@closed/n2" {
		t.Errorf("%+v", all)
	}
	none := w.Talk("closed/n1", "closed/n2", labtest.NewKey(t, "none"))
	none.Say(&nodepb.ToNode{Say: &nodepb.ToNode_Cancel{Cancel: &nodepb.Cancel{Key: none.ID}}})
	none.End() // no node service answers at a node that offers nothing
	hosts, err := submitters.Hosts(w.Ctx, &nodepb.HostsRequest{})
	if err != nil || len(hosts.Hosts) != 3 {
		t.Errorf("the hosts are %v, %v", hosts, err)
	}
}

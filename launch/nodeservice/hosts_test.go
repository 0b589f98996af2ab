package nodeservice

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/isthmus-grid/isthmus/launch/latency"
	"github.com/isthmus-grid/isthmus/launch/nearby"
	"github.com/isthmus-grid/isthmus/launch/nodeservice/nodepb"
	"github.com/isthmus-grid/isthmus/launch/offer"
	"github.com/isthmus-grid/isthmus/overlay"
)

// farNode is a node service with delayed answers.
type farNode struct {
	nodepb.NodeServiceClient
	rtt time.Duration
}

func (g farNode) Ping(context.Context, *nodepb.PingRequest, ...grpc.CallOption) (*nodepb.PingResponse, error) {
	time.Sleep(g.rtt)
	return &nodepb.PingResponse{}, nil
}

// Hosts that are up are measured, and only once the path to them is set up; the others are listed
// all the same.
func TestHostList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := func(name string) overlay.NodeID { return overlay.NodeID{Site: "s", Name: name} }
		taking := offer.Offer{Jobs: 1, Processes: 2, Memory: 3, CPU: 4}
		list := []offer.Host{
			{Node: node("away"), State: offer.Away, Silent: time.Minute, Offer: taking},
			{Node: node("far"), State: offer.Up, Offer: taking},
			{Node: node("idle"), State: offer.Up},
			{Node: node("self"), State: offer.Up, Offer: taking},
		}
		open := 0
		reach := func(_ context.Context, n overlay.NodeID) (nodepb.NodeServiceClient, func(), error) {
			if n != node("far") {
				t.Errorf("%v is asked", n)
			}
			time.Sleep(time.Second) // the path setup
			open++
			return farNode{rtt: 7 * time.Millisecond}, func() { open-- }, nil
		}
		near := nearby.New(Pinger(node("self"), reach), 1, latency.Config{}, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		var serving sync.WaitGroup
		serving.Go(func() { near.Serve(ctx) })
		hosts := HostList{List: func(context.Context) (offer.List, error) { return offer.List{Hosts: list, Stale: "old"}, nil }, Nearby: near}
		// In this order, with these distances: the nearest first, then those of unknown latency.
		type far struct {
			at  int // index in list
			rtt time.Duration
		}
		ask := func(want ...far) {
			t.Helper()
			r, err := hosts.Hosts(ctx, nil)
			if err != nil || len(r.Hosts) != len(list) || r.Stale != "old" {
				t.Fatalf("%v, %v", r, err)
			}
			for i, h := range r.Hosts {
				l := list[want[i].at]
				if h.Node != l.Node.String() || h.State != l.State.String() || h.SilentMs != uint64(l.Silent.Milliseconds()) ||
					h.Jobs != uint32(l.Offer.Jobs) || h.Processes != uint32(l.Offer.Processes) || h.Memory != uint64(l.Offer.Memory) || h.Cpu != uint32(l.Offer.CPU) || h.Power != uint32(l.Offer.Power) {
					t.Errorf("%+v became %v", l, h)
				}
				if time.Duration(h.LatencyNs) != want[i].rtt {
					t.Errorf("%v is %v away, want %v", h.Node, time.Duration(h.LatencyNs), want[i].rtt)
				}
			}
		}
		ask(far{1, 0}, far{3, 0}, far{0, 0}, far{2, 0})
		time.Sleep(time.Minute)
		ask(far{3, ownDistance}, far{1, 7 * time.Millisecond}, far{0, 0}, far{2, 0})
		r := hostsToPB(list, []latency.Entry{{Node: node("self"), RTT: 1}, {Node: node("far"), Silent: true}})
		if far := r.Hosts[1]; far.Node != "s/far" || !far.Unanswered || r.Hosts[0].Unanswered {
			t.Errorf("a host that does not answer: %v", r)
		}
		hosts.List = func(context.Context) (offer.List, error) { return offer.List{}, errors.New("no frontal") }
		if _, err := hosts.Hosts(ctx, nil); err == nil {
			t.Error("a list from nowhere")
		}
		cancel()
		serving.Wait()
		if open != 0 {
			t.Errorf("%d node services are still in use", open)
		}
	})
}

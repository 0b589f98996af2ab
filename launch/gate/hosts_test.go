package gate

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/isthmus-grid/isthmus/launch/gate/gatepb"
	"github.com/isthmus-grid/isthmus/launch/latency"
	"github.com/isthmus-grid/isthmus/launch/nearby"
	"github.com/isthmus-grid/isthmus/launch/offer"
	"github.com/isthmus-grid/isthmus/overlay"
)

// farGate is a gate whose answers take so long.
type farGate struct {
	gatepb.GateClient
	rtt time.Duration
}

func (g farGate) Ping(context.Context, *gatepb.PingRequest, ...grpc.CallOption) (*gatepb.PingResponse, error) {
	time.Sleep(g.rtt)
	return &gatepb.PingResponse{}, nil
}

// Hosts that are up are measured, and only once the way to them is there; the
// others are listed all the same.
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
		reach := func(_ context.Context, n overlay.NodeID) (gatepb.GateClient, func(), error) {
			if n != node("far") {
				t.Errorf("%v is asked", n)
			}
			time.Sleep(time.Second) // the way there
			open++
			return farGate{rtt: 7 * time.Millisecond}, func() { open-- }, nil
		}
		near := nearby.New(Pinger(node("self"), reach), 1, latency.Config{}, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		var serving sync.WaitGroup
		serving.Go(func() { near.Serve(ctx) })
		hosts := HostList{List: func(context.Context) ([]offer.Host, error) { return list, nil }, Near: near}
		ask := func(want ...time.Duration) {
			t.Helper()
			r, err := hosts.Hosts(ctx, nil)
			if err != nil || len(r.Hosts) != len(list) {
				t.Fatalf("%v, %v", r, err)
			}
			for i, h := range r.Hosts {
				if h.Node != list[i].Node.String() || h.State != list[i].State.String() || h.SilentMs != uint64(list[i].Silent.Milliseconds()) ||
					h.Jobs != uint32(list[i].Offer.Jobs) || h.Processes != uint32(list[i].Offer.Processes) || h.Memory != uint64(list[i].Offer.Memory) || h.Cpu != uint32(list[i].Offer.CPU) {
					t.Errorf("%+v became %v", list[i], h)
				}
				if time.Duration(h.LatencyNs) != want[i] {
					t.Errorf("%v is %v away, want %v", h.Node, time.Duration(h.LatencyNs), want[i])
				}
			}
		}
		ask(0, 0, 0, 0)
		time.Sleep(time.Minute)
		ask(0, 7*time.Millisecond, 0, atHome)
		hosts.List = func(context.Context) ([]offer.Host, error) { return nil, errors.New("no frontal") }
		if _, err := hosts.Hosts(ctx, nil); err == nil {
			t.Error("a list from nowhere")
		}
		cancel()
		serving.Wait()
		if open != 0 {
			t.Errorf("%d gates are still in use", open)
		}
	})
}

package launch

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-grid/isthmus/broker"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/launch/nodeservice"
	"github.com/isthmus-grid/isthmus/launch/nodeservice/nodepb"
)

// patience is the timeout of a wait.
const patience = 3 * time.Minute

// listed waits until the broker lists n hosts. It needs no connections to them.
func listed(ctx context.Context, g *grid.Grid, n int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not done after %v", patience))
	defer cancel()
	for {
		st, err := g.Status(ctx, "broker")
		if err != nil {
			return err
		}
		text, err := json.Marshal(st)
		if err != nil {
			return err
		}
		var s broker.Status
		if err := json.Unmarshal(text, &s); err != nil {
			return fmt.Errorf("status of the broker: %w", err)
		}
		up := 0
		for _, site := range s.Sites {
			up += site.Hosts.Up
		}
		if up == n {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the broker lists %d of %d hosts: %w", up, n, context.Cause(ctx))
		case <-time.After(20 * time.Millisecond): // nothing announces it
		}
	}
}

// awaitHosts waits until a node's helper lists n hosts and knows the distance of each: the helper
// asks its frontal every few seconds, and pings hosts on request. It returns the round trips by
// site, shortest first.
func awaitHosts(ctx context.Context, g *grid.Grid, node string, n int) (map[string][]time.Duration, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not done after %v", patience))
	defer cancel()
	conn, err := nodeservice.Connect(g.Socket(node))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	for {
		list, err := nodepb.NewSubmittersClient(conn).Hosts(ctx, &nodepb.HostsRequest{})
		if err != nil && (status.Code(err) != codes.Unavailable || ctx.Err() != nil) { // a busy machine may answer late
			return nil, fmt.Errorf("the list of hosts at %s: %w", node, control.FromStatus(err))
		}
		far, rtts := 0, map[string][]time.Duration{}
		for _, h := range list.GetHosts() {
			if h.LatencyNs > 0 {
				far++
				site, _, _ := strings.Cut(h.Node, "/")
				rtts[site] = append(rtts[site], time.Duration(h.LatencyNs))
			}
		}
		if far == n {
			for _, all := range rtts {
				slices.Sort(all)
			}
			return rtts, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%s knows %d of %d hosts, and how far %d are: %w", node, len(list.GetHosts()), n, far, context.Cause(ctx))
		case <-time.After(100 * time.Millisecond): // nothing announces it
		}
	}
}

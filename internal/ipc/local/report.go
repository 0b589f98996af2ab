package local

import (
	"maps"
	"sync"

	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// Report implements overlay.TrafficReporter. Reports that were not sent to a helper that is gone
// are sent to the next one, and for links that are not over the latest report is sent again.
func (c *Client) Report(t overlay.Traffic) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.reports[t.Link]; !known && len(c.reports) >= maxReports {
		return
	}
	c.reports[t.Link] = report{Traffic: t}
	select {
	case c.news <- struct{}{}:
	default:
	}
}

// Reserve implements overlay.Reserver.
func (c *Client) Reserve(peer overlay.ProcessName, life overlay.Generation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn == nil || !c.keeps || len(c.wanted) >= maxReserves {
		return
	}
	c.wanted[peer.Rank] = life
	select {
	case c.news <- struct{}{}:
	default:
	}
}

// reportTo sends reports to a new helper, until the returned function is called, which waits.
func (c *Client) reportTo(conn *Conn) (stop func()) {
	c.mu.Lock()
	for id, r := range c.reports {
		r.sent = false
		c.reports[id] = r
	}
	c.mu.Unlock()
	end := make(chan struct{})
	var sending sync.WaitGroup
	sending.Go(func() {
		for {
			if c.sendReport(conn) != nil {
				return
			}
			select {
			case <-c.news:
			case <-end:
				return
			}
		}
	})
	return func() {
		conn.Close() // fails a pending Send
		close(end)
		sending.Wait()
	}
}

// sendReport sends the pending outcomes, requests for reserve relays and reports. When it returns
// nil, everything reported before the call was sent. An error has closed conn.
func (c *Client) sendReport(conn *Conn) error {
	c.telling.Lock()
	defer c.telling.Unlock()
	c.mu.Lock()
	var due []overlay.Traffic
	for _, r := range c.reports {
		if !r.sent {
			due = append(due, r.Traffic)
		}
	}
	judged := c.judged
	c.judged = nil
	wanted := maps.Clone(c.wanted)
	clear(c.wanted)
	c.mu.Unlock()
	for _, f := range judged {
		if err := conn.Send(f, nil); err != nil {
			return err
		}
	}
	for rank, life := range wanted {
		if err := conn.Send(&wire.LocalReserve{Rank: rank, Generation: life}, nil); err != nil {
			return err
		}
	}
	for _, t := range due {
		if err := conn.Send(&wire.LocalTraffic{Traffic: t}, nil); err != nil {
			return err
		}
		c.mu.Lock()
		switch r := c.reports[t.Link]; {
		case r.Traffic != t: // a later report has replaced it
		case t.Over:
			delete(c.reports, t.Link)
		default:
			r.sent = true
			c.reports[t.Link] = r
		}
		c.mu.Unlock()
	}
	return nil
}

package statusmap

import (
	"fmt"
	"strings"
)

// placeBrokers divides the top among the brokers, and returns the height of their boxes: of one line
// if name and note of each fit beside each other.
func (m *Map) placeBrokers() (height int) {
	x, n := edge, len(m.Brokers)
	height = headingHeight - lineHeight + 2
	for i := range m.Brokers {
		b := &m.Brokers[i]
		b.Box = Box{x, edge, (m.Width - edge - x - gap*(n-1-i)) / (n - i), 0}
		x += b.W + gap
		if textWidth(b.title(), nameChar)+textWidth(b.Note, textChar)+3*pad > b.W {
			height = headingHeight + 2
		}
	}
	for i := range m.Brokers {
		b := &m.Brokers[i]
		b.H = height
		b.Texts = b.heading(b.title(), b.Note)
		if note := &b.Texts[1]; height < headingHeight {
			note.X, note.Y = b.X+b.W-pad-textWidth(note.Text, textChar), b.Texts[0].Y
		}
	}
	return height
}

func (b *BrokerBox) title() string { return "broker " + b.Name }

// connectBrokers draws the sessions: from each broker a rail down beside the columns of sites, and
// from it a line to each site of which something is known. The rail of a broker that comes later is
// farther from the sites.
func (m *Map) connectBrokers(c columns) {
	n := len(m.Brokers)
	for i := range m.Brokers {
		b := &m.Brokers[i]
		y := b.Y + b.H
		if n > 1 {
			y += railGap * (n - i)
		}
		left := edge + railGap*(n-1-i)
		lowLeft := b.sessions(c.leftSites, i, left)
		lowRight := b.sessions(c.rightSites, i, m.Width-left)
		var rail strings.Builder
		fmt.Fprintf(&rail, "M%d %dV%d", b.X+b.W/2, b.Y+b.H, y)
		if lowLeft > 0 {
			fmt.Fprintf(&rail, "H%dV%d", left, lowLeft)
		}
		if lowRight > 0 {
			fmt.Fprintf(&rail, "M%d %dH%dV%d", b.X+b.W/2, y, m.Width-left, lowRight)
		}
		if len(b.Sessions) > 0 {
			b.Rail = rail.String()
		}
		if i == 0 {
			m.connectProxies(b, c, y)
		}
	}
}

// sessions adds a line for each session of a column of sites, from a rail at x, and returns where the
// last one is; 0 if there is none.
func (b *BrokerBox) sessions(sites []*SiteBox, broker, x int) (last int) {
	for _, s := range sites {
		if broker >= len(s.Sessions) || s.Sessions[broker] == Unknown {
			continue
		}
		to, class := s.X, "open"
		if x > s.X {
			to += s.W
		}
		if s.Sessions[broker] == Closed {
			class = "closed"
		}
		last = s.Y + min(pad+4+railGap*broker, s.H-pad)
		b.Sessions = append(b.Sessions, Line{fmt.Sprintf("M%d %dH%d", x, last, to), class})
	}
	return last
}

// connectProxies draws the line from a broker to all proxies, each of which has a session with it, by
// way of its rail at y.
func (m *Map) connectProxies(b *BrokerBox, c columns, y int) {
	if len(m.Proxies) == 0 {
		return
	}
	x := c.middle.X - railGap
	var spine strings.Builder
	last := 0
	for _, p := range m.Proxies {
		at := p.Y + pad + 4
		fmt.Fprintf(&spine, "M%d %dH%d", x, at, c.middle.X)
		last = max(last, at)
	}
	m.Spine = fmt.Sprintf("M%d %dV%dH%dV%d", b.X+b.W/2, b.Y+b.H, y, x, last) + spine.String()
}

package statusmap

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/isthmus-grid/isthmus/overlay"
)

// maxStretch is how much a row grows where the columns of sites are higher than the rows; beyond it,
// the distances grow.
const maxStretch = 16

// item is what stands in the middle column: a proxy with its rows, or one row.
type item struct {
	proxy *ProxyBox // nil: none
	rows  []*PairBox
	place float64 // mean place of the sites in their columns, 0 to 1
}

// items returns the middle column in an order in which lines are short: by the mean place of the
// sites. Proxies that relay nothing come last.
func (m *Map) items(c columns) []item {
	place := map[overlay.SiteID]float64{}
	for _, sites := range [][]*SiteBox{c.leftSites, c.rightSites} {
		for i, s := range sites {
			place[s.ID] = (float64(i) + 0.5) / float64(len(sites))
		}
	}
	at := func(p *PairBox) float64 { return (place[p.A] + place[p.B]) / 2 }
	byProxy := map[string]int{}
	var items []item
	for i := range m.Proxies {
		byProxy[m.Proxies[i].Name] = len(items)
		items = append(items, item{proxy: &m.Proxies[i]})
	}
	for i := range m.Pairs {
		p := &m.Pairs[i]
		p.setTexts(c.middle.W)
		if k, ok := byProxy[p.Proxy]; ok && p.Proxy != "" {
			items[k].rows = append(items[k].rows, p)
		} else {
			items = append(items, item{rows: []*PairBox{p}})
		}
	}
	for i := range items {
		it := &items[i]
		slices.SortStableFunc(it.rows, func(a, b *PairBox) int { return cmp.Compare(at(a), at(b)) })
		for _, p := range it.rows {
			it.place += at(p) / float64(len(it.rows))
		}
		if len(it.rows) == 0 {
			it.place = 1
		}
	}
	slices.SortStableFunc(items, func(a, b item) int { return cmp.Compare(a.place, b.place) })
	return items
}

// setTexts writes the row's texts: the label, with the sites' names if they fit, and as many details
// on a line as fit. Where they are is not set yet.
func (p *PairBox) setTexts(width int) {
	width -= pad
	label := fmt.Sprintf("%s - %s: %s", p.A, p.B, p.Label)
	if textWidth(label, textChar) > width {
		label = clip(p.Label, textChar, width)
	}
	p.Texts = []Text{{Text: label, Class: "label"}}
	line := ""
	for _, detail := range p.Details {
		if joined := line + ", " + detail; line != "" && textWidth(joined, textChar) <= width {
			line = joined
			continue
		}
		if line != "" {
			p.Texts = append(p.Texts, Text{Text: line, Class: "detail"})
		}
		line = clip(detail, textChar, width)
	}
	if line != "" {
		p.Texts = append(p.Texts, Text{Text: line, Class: "detail"})
	}
}

// natural returns the height that a row needs.
func (p *PairBox) natural() int { return len(p.Texts)*lineHeight + pad }

// meterHeight is the height of a proxy's load and the space below.
const meterHeight = 14

// natural returns the height that an item needs.
func (it item) natural() int {
	height := 0
	if it.proxy != nil {
		height += headingHeight + meterHeight
	}
	for _, p := range it.rows {
		height += p.natural()
	}
	return height
}

// itemsHeight returns the height of all items that are as high as they need to be.
func itemsHeight(items []item) int {
	height := gap * max(len(items)-1, 0)
	for _, it := range items {
		height += it.natural()
	}
	return height
}

// stackItems places the items below each other, all together of the given height. Rows grow a little
// to fill it; what is still missing is added to the proxies or, without any, to the gaps.
func stackItems(items []item, column Box, top, height int) {
	extra := height - itemsHeight(items)
	rows, proxies := 0, 0
	for _, it := range items {
		rows += len(it.rows)
		if it.proxy != nil {
			proxies++
		}
	}
	stretch := min(extra/max(rows, 1), maxStretch)
	extra -= stretch * rows
	gaps := 0
	if proxies == 0 {
		gaps = len(items) + 1
	}
	y := top
	for _, it := range items {
		if gaps > 0 {
			y, extra, gaps = y+extra/gaps, extra-extra/gaps, gaps-1
		}
		if it.proxy != nil {
			share := extra / proxies
			extra, proxies = extra-share, proxies-1
			it.proxy.Box = Box{column.X, y, column.W, it.natural() + stretch*len(it.rows) + share}
			it.proxy.fill()
			y += headingHeight + meterHeight + share
		}
		for _, p := range it.rows {
			p.Box = Box{column.X, y, column.W, p.natural() + stretch}
			p.placeTexts()
			y += p.H
		}
		y += gap
	}
}

// fill draws what is in the proxy's box above its rows.
func (p *ProxyBox) fill() {
	p.Texts = p.heading("proxy "+p.Name, p.Note)
	p.Meter = Box{p.X + pad, p.Y + headingHeight + 1, p.W - 2*pad, 5}
	p.Used = p.Meter
	p.Used.W = int(float64(p.Meter.W) * min(max(p.Load, 0), 1))
}

// placeTexts centres the row's texts.
func (p *PairBox) placeTexts() {
	y := p.Y + (p.H-len(p.Texts)*lineHeight)/2 + lineHeight - 4
	for i := range p.Texts {
		t := &p.Texts[i]
		t.X, t.Y = p.X+(p.W-textWidth(t.Text, textChar))/2, y+i*lineHeight
	}
}

// connectPairs draws the lines from each row to its two sites. On a site's box they begin in the
// order of the rows, so that few cross.
func (m *Map) connectPairs(c columns) {
	ports := map[overlay.SiteID]*port{}
	for i := range m.Sites {
		s := &m.Sites[i]
		ports[s.ID] = &port{site: s, right: i >= len(c.leftSites)}
	}
	byPlace := make([]*PairBox, len(m.Pairs))
	for i := range m.Pairs {
		byPlace[i] = &m.Pairs[i]
	}
	slices.SortStableFunc(byPlace, func(a, b *PairBox) int { return cmp.Compare(a.Y, b.Y) })
	for _, p := range byPlace {
		for _, id := range []overlay.SiteID{p.A, p.B} {
			if ports[id] != nil {
				ports[id].lines++
			}
		}
	}
	for _, p := range byPlace {
		a, b := ports[p.A], ports[p.B]
		if a == nil || b == nil {
			continue
		}
		y := p.Y + p.H/2
		ya, yb := y, y
		if a.right == b.right { // both lines end at the same side of the row
			ya, yb = y-4, y+4
			if a.site.Y > b.site.Y {
				ya, yb = yb, ya
			}
		}
		p.Lines = []string{a.line(p.Box, ya), b.line(p.Box, yb)}
	}
}

// port is the side of a site's box from which lines go to rows.
type port struct {
	site        *SiteBox
	right       bool // the site is right of the rows
	lines, used int
}

// line draws the next line, to a row at y.
func (p *port) line(row Box, y int) string {
	p.used++
	from, to := p.site.X+p.site.W, row.X
	if p.right {
		from, to = p.site.X, row.X+row.W
	}
	at := p.site.Y + p.site.H*p.used/(p.lines+1)
	return fmt.Sprintf("M%d %dC%d %d %d %d %d %d", from, at, (from+to)/2, at, (from+to)/2, y, to, y)
}

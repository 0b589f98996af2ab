// Package statusmap lays out the map of the broker's status page: brokers at the top, boxes of sites
// with their hosts in one or two columns, and between them a row for each pair of sites; the rows of
// pairs that a proxy relays are in the proxy's box. Lines from a row to its two sites run in the
// channels beside the columns, so that no line crosses a box, and all columns are of one height.
//
// It is pure: it knows neither the broker's state nor HTML, and its result depends on its arguments
// alone. Its work grows linearly with the hosts and the pairs; bounding them is up to the caller.
package statusmap

import (
	"slices"

	"github.com/isthmus-grid/isthmus/launch/offer"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Grid is what is drawn.
type Grid struct {
	Brokers []BrokerBox // the one whose page it is comes first
	Proxies []ProxyBox
	Sites   []SiteBox
	Pairs   []PairBox
}

// BrokerBox is a broker and the lines of its sessions. Of a value given to Draw only Name and Note
// are used.
type BrokerBox struct {
	Name, Note string

	Box
	Texts    []Text
	Rail     string // path data of the line that all its sessions share; "": there is no session
	Sessions []Line
}

// ProxyBox is a proxy, with the rows of the pairs that it relays. Of a value given to Draw only the
// first three fields are used.
type ProxyBox struct {
	Name, Note string
	Load       float64 // share of its links that are in use, 0 to 1

	Box
	Texts       []Text
	Meter, Used Box // Used is the part of Meter that shows Load
}

// SiteBox is a site with its hosts. Of a value given to Draw the fields before Box are used.
type SiteBox struct {
	ID       overlay.SiteID
	Note     string // "8 processes"
	Title    string // all of it in words
	Up       bool   // it has a session with the first broker
	Hosts    []offer.Host
	Sessions []Session // with each of Grid.Brokers; a missing one is Unknown

	Box
	Texts []Text
	Marks []Mark // one for each state of its hosts, over all hosts of that state
	Drawn int    // hosts that have a mark; the rest is counted in Texts
}

// Session is what is known of a site's session with a broker.
type Session uint8

// The states of a session.
const (
	Unknown Session = iota
	Open
	Closed
)

// PairBox is the row of a pair of sites. Of a value given to Draw the fields before Box are used.
type PairBox struct {
	A, B    overlay.SiteID
	Proxy   string // name of the proxy that relays it; "": none
	Label   string
	Details []string
	Kind    string // class of its lines and texts
	Title   string // all of it in words

	Asker, Target overlay.SiteID // of the pair's page

	Box
	Texts []Text
	Lines []string // path data, one to each site
}

// Box is a rectangle.
type Box struct{ X, Y, W, H int }

// Text is a line of text; X is its begin and Y its baseline.
type Text struct {
	X, Y  int
	Text  string
	Class string // name, note or host
}

// Line is the path data of a line, with the class that says how it looks.
type Line struct{ D, Class string }

// Mark is the path data of the marks of all hosts in one state.
type Mark struct {
	State string
	D     string
}

// Map is the drawing. What the fields of Grid hold has its place in it.
type Map struct {
	Grid
	Width, Height int
	Spine         string // path data of the line from the first broker to the proxies; "": none
}

// Distances in the drawing.
const (
	edge       = 2  // around everything, for the width of lines
	pad        = 8  // inside a box
	gap        = 10 // between boxes
	railGap    = 6  // between the lines of two brokers' sessions
	nameHeight = 17
	lineHeight = 15
	nameChar   = 8.0 // width of a character of a name; texts are monospaced, so that widths are known
	textChar   = 7.3
)

// Draw lays out a grid on a drawing of the given width, whose height follows.
func Draw(g Grid, width int) Map {
	m := Map{Width: width, Grid: Grid{
		Brokers: slices.Clone(g.Brokers), Proxies: slices.Clone(g.Proxies), Sites: slices.Clone(g.Sites), Pairs: slices.Clone(g.Pairs),
	}}
	top := edge + m.placeBrokers() + gap
	if n := len(m.Brokers); n > 1 {
		top += railGap * n
	}
	c := m.columns()
	items := m.items(c)
	height := 0
	for _, sites := range [][]*SiteBox{c.leftSites, c.rightSites} {
		height = max(height, naturalHeight(sites, c.left.W))
	}
	height = max(height, itemsHeight(items))
	stackSites(c.leftSites, c.left, top, height)
	stackSites(c.rightSites, c.right, top, height)
	stackItems(items, c.middle, top, height)
	for i := range m.Sites {
		m.Sites[i].fill()
	}
	m.connectPairs(c)
	m.connectBrokers(c)
	m.Height = top + height + edge
	return m
}

// columns are where the sites and the rows are; only X and W of the boxes are set.
type columns struct {
	left, middle, right   Box
	leftSites, rightSites []*SiteBox
}

// minTwoSided is the least width of a drawing with two columns of sites.
const minTwoSided = 500

// columns divides the width. A narrow drawing, or one of a single site, has one column of sites.
func (m *Map) columns() columns {
	gutter := m.gutter()
	var all []*SiteBox
	for i := range m.Sites {
		all = append(all, &m.Sites[i])
	}
	inner := m.Width - gutter - edge // without the gutters
	twoSided := len(all) > 1 && m.Width >= minTwoSided
	if twoSided {
		inner = m.Width - 2*gutter
	}
	channel, middle := inner*10/100, inner*26/100
	if !twoSided {
		middle = inner * 41 / 100
	}
	switch {
	case len(m.Pairs)+len(m.Proxies) == 0:
		channel, middle = gap/2, 0
	case len(m.Pairs) == 0: // no lines but that to the proxies
		channel = gap + railGap
	}
	var c columns
	switch {
	case len(all) == 0:
		c.middle = Box{X: gutter, W: inner}
	case twoSided:
		half := (len(all) + 1) / 2
		c.leftSites, c.rightSites = all[:half], all[half:]
		side := (inner - middle - 2*channel) / 2
		c.left = Box{X: gutter, W: side}
		c.middle = Box{X: gutter + side + channel, W: middle}
		c.right = Box{X: m.Width - gutter - side, W: side}
	default:
		c.leftSites = all
		c.left = Box{X: gutter, W: inner}
		if middle > 0 {
			c.left.W = inner - middle - channel
			c.middle = Box{X: gutter + inner - middle, W: middle}
		}
	}
	return c
}

// gutter is the width beside a column of sites for the lines of the brokers' sessions.
func (m *Map) gutter() int { return edge + railGap*len(m.Brokers) + railGap }

// textWidth returns the width of a text whose characters are that wide.
func textWidth(text string, char float64) int { return int(float64(len([]rune(text)))*char + 0.99) }

// clip shortens a text to a width.
func clip(text string, char float64, width int) string {
	r := []rune(text)
	if n := max(int(float64(width)/char), 1); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return text
}

// heading returns a name and what is said of it, clipped to the box.
func (b Box) heading(name, note string) []Text {
	return []Text{
		{b.X + pad, b.Y + pad + 11, clip(name, nameChar, b.W-2*pad), "name"},
		{b.X + pad, b.Y + pad + 11 + lineHeight, clip(note, textChar, b.W-2*pad), "note"},
	}
}

// headingHeight is the height of a box that has nothing but a heading.
const headingHeight = pad + nameHeight + lineHeight

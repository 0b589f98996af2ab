package statusmap

import (
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/isthmus-grid/isthmus/launch/offer"
	"github.com/isthmus-grid/isthmus/overlay"
)

// sample returns a grid with that many of each; sites have different numbers of hosts, up to hosts.
func sample(sites, hosts, proxies, brokers int) Grid {
	var g Grid
	for i := range brokers {
		g.Brokers = append(g.Brokers, BrokerBox{Name: fmt.Sprintf("broker%d.example.org", i), Note: "sessions with 3 of 4 sites, 2 proxies"})
	}
	for i := range proxies {
		g.Proxies = append(g.Proxies, ProxyBox{Name: fmt.Sprintf("p%d", i), Note: "12 of 8192 links, draining", Load: float64(i) / 2})
	}
	for i := range sites {
		s := SiteBox{ID: overlay.SiteID(fmt.Sprintf("site%02d", i)), Note: "128 processes", Up: i%3 > 0}
		if i%4 == 3 {
			s.ID += "-with-quite-a-long-name.example.org"
		}
		for j := range hosts * (i%3 + 1) / min(sites, 3) {
			s.Hosts = append(s.Hosts, offer.Host{Node: overlay.NodeID{Site: s.ID, Name: fmt.Sprintf("node%d", j)}, State: offer.Up + offer.State(j%7/5)})
		}
		for b := range brokers {
			s.Sessions = append(s.Sessions, Session((i+b)%3))
		}
		g.Sites = append(g.Sites, s)
	}
	for i, a := range g.Sites {
		for j, b := range g.Sites[:i] {
			if sites > 8 && (i+j)%7 > 0 {
				continue
			}
			p := PairBox{A: a.ID, B: b.ID, Label: "simultaneous-open", Kind: "traversal"}
			switch (i + j) % 3 {
			case 0:
				p.Label, p.Details, p.Proxy = "relay", []string{"123 Mbit/s", "held back"}, fmt.Sprintf("p%d", j%3)
			case 1:
				p.Details = []string{"fails"}
			}
			g.Pairs = append(g.Pairs, p)
		}
	}
	return g
}

// drawing is a grid, and how it is drawn.
type drawing struct {
	name  string
	grid  Grid
	drawn Map
}

// drawings are grids of all sizes, narrow and wide.
var drawings = sync.OnceValue(func() (all []drawing) {
	for _, width := range []int{360, 620, 960} {
		for _, sites := range []int{0, 1, 2, 3, 8, 30} {
			for _, hosts := range []int{0, 6, 200} {
				for _, proxies := range []int{0, 1, 4} {
					for _, brokers := range []int{1, 2, 3} {
						g := sample(sites, hosts, proxies, brokers)
						all = append(all, drawing{fmt.Sprintf("%d sites, %d hosts, %d proxies, %d brokers, width %d", sites, hosts, proxies, brokers, width), g, Draw(g, width)})
					}
				}
			}
		}
	}
	return all
})

// each calls check for every drawing.
func each(t *testing.T, check func(t *testing.T, g Grid, m Map)) {
	for _, d := range drawings() {
		if check(t, d.grid, d.drawn); t.Failed() {
			t.Fatalf("%s, height %d", d.name, d.drawn.Height)
		}
	}
}

func (b Box) right() int  { return b.X + b.W }
func (b Box) bottom() int { return b.Y + b.H }

func (b Box) inside(of Box) bool {
	return b.X >= of.X && b.Y >= of.Y && b.right() <= of.right() && b.bottom() <= of.bottom()
}

func (b Box) overlaps(o Box) bool {
	return b.X < o.right() && o.X < b.right() && b.Y < o.bottom() && o.Y < b.bottom()
}

// box returns the room that a text takes.
func (t Text) box() Box {
	char := textChar
	if t.Class == "name" {
		char = nameChar
	}
	return Box{t.X, t.Y - 11, textWidth(t.Text, char), 13}
}

// frame is a box that nothing else may overlap, with the texts in it.
type frame struct {
	name  string
	box   Box
	texts []Text
}

// frames returns the boxes of a drawing. Rows in a proxy's box are left out.
func frames(m Map) (all []frame) {
	relayed := map[string]bool{}
	for _, b := range m.Brokers {
		all = append(all, frame{"broker " + b.Name, b.Box, b.Texts})
	}
	for _, p := range m.Proxies {
		relayed[p.Name] = true
		all = append(all, frame{"proxy " + p.Name, p.Box, p.Texts})
	}
	for _, s := range m.Sites {
		all = append(all, frame{"site " + string(s.ID), s.Box, s.Texts})
	}
	for _, p := range m.Pairs {
		if !relayed[p.Proxy] {
			all = append(all, frame{fmt.Sprintf("row %s-%s", p.A, p.B), p.Box, p.Texts})
		}
	}
	return all
}

// No box overlaps another, texts are inside their boxes and do not overlap, and nothing is outside
// the drawing.
func TestNothingOverlaps(t *testing.T) {
	each(t, func(t *testing.T, g Grid, m Map) {
		whole := Box{0, 0, m.Width, m.Height}
		all := frames(m)
		for i, f := range all {
			if f.box.W <= 0 || f.box.H <= 0 || !f.box.inside(whole) {
				t.Errorf("%s is at %+v, outside", f.name, f.box)
			}
			for _, o := range all[:i] {
				if f.box.overlaps(o.box) {
					t.Errorf("%s at %+v overlaps %s at %+v", f.name, f.box, o.name, o.box)
				}
			}
			for k, text := range f.texts {
				if !text.box().inside(f.box) {
					t.Errorf("%s at %+v: %q at %+v is not inside", f.name, f.box, text.Text, text.box())
				}
				for _, o := range f.texts[:k] {
					if text.box().overlaps(o.box()) {
						t.Errorf("%s: %q at %+v overlaps %q at %+v", f.name, text.Text, text.box(), o.Text, o.box())
					}
				}
			}
		}
		proxies := map[string]ProxyBox{}
		for _, p := range m.Proxies {
			proxies[p.Name] = p
			if !p.Meter.inside(p.Box) || !p.Used.inside(p.Meter) {
				t.Errorf("proxy %s: meter at %+v, used %+v", p.Name, p.Meter, p.Used)
			}
		}
		for i, p := range m.Pairs {
			proxy, ok := proxies[p.Proxy]
			if !ok {
				continue
			}
			if !p.inside(proxy.Box) || p.overlaps(proxy.Meter) {
				t.Errorf("the row at %+v is not in its proxy at %+v", p.Box, proxy.Box)
			}
			for _, o := range m.Pairs[:i] {
				if p.overlaps(o.Box) {
					t.Errorf("rows at %+v and %+v overlap", p.Box, o.Box)
				}
			}
		}
	})
}

// The boxes reach to all edges of the drawing, the columns of sites are filled from top to bottom
// with gaps of one size, and so is the middle column where a proxy can grow.
func TestNothingIsEmpty(t *testing.T) {
	each(t, func(t *testing.T, g Grid, m Map) {
		margin := edge + railGap*(len(g.Brokers)+1)
		columns := map[int][]Box{}
		low, first, last := 0, m.Width, 0
		for _, f := range frames(m)[len(m.Brokers):] {
			low, first, last = max(low, f.box.bottom()), min(first, f.box.X), max(last, f.box.right())
			if strings.HasPrefix(f.name, "site") || len(m.Proxies) > 0 {
				columns[f.box.X] = append(columns[f.box.X], f.box)
			}
		}
		if end := m.Brokers[len(m.Brokers)-1].right(); m.Brokers[0].X > edge || m.Brokers[0].Y > edge || end < m.Width-edge {
			t.Errorf("the brokers are from %d to %d", m.Brokers[0].X, end)
		}
		if len(columns) == 0 {
			return
		}
		if low < m.Height-edge {
			t.Errorf("the lowest box ends at %d", low)
		}
		for x, boxes := range columns {
			height, high, low := 0, m.Height, 0
			for _, b := range boxes {
				height += b.H
				high, low = min(high, b.Y), max(low, b.bottom())
			}
			if high > m.Brokers[0].bottom()+gap+railGap*len(g.Brokers) || low < m.Height-edge || height+gap*(len(boxes)-1) < low-high {
				t.Errorf("the column at %d is from %d to %d, with %d of boxes in it", x, high, low, height)
			}
		}
		if first > margin || last < m.Width-margin {
			t.Errorf("the columns are from %d to %d", first, last)
		}
	})
}

var number = regexp.MustCompile(`-?\d+`)

// numbers returns the numbers of path data.
func numbers(d string) (all []int) {
	for _, text := range number.FindAllString(d, -1) {
		n, _ := strconv.Atoi(text)
		all = append(all, n)
	}
	return all
}

// The lines of a row lead from its two sites to the row, and stay beside the columns, so that they
// cross no box.
func TestLinesCrossNoBox(t *testing.T) {
	each(t, func(t *testing.T, g Grid, m Map) {
		all := frames(m)
		sites := map[overlay.SiteID]SiteBox{}
		for _, s := range m.Sites {
			sites[s.ID] = s
		}
		for _, p := range m.Pairs {
			if len(p.Lines) != 2 {
				t.Fatalf("the row of %s and %s has %d lines", p.A, p.B, len(p.Lines))
			}
			for k, d := range p.Lines {
				s := sites[[]overlay.SiteID{p.A, p.B}[k]]
				n := numbers(d) // M x1 y1 C xm y1 xm y2 x2 y2: within the rectangle of its ends
				x1, y1, x2, y2 := n[0], n[1], n[6], n[7]
				if x1 != s.X && x1 != s.right() || y1 <= s.Y || y1 >= s.bottom() {
					t.Errorf("%s begins away from %s at %+v", d, s.ID, s.Box)
				}
				if x2 != p.X && x2 != p.right() || y2 <= p.Y || y2 >= p.bottom() {
					t.Errorf("%s ends away from its row at %+v", d, p.Box)
				}
				around := Box{min(x1, x2), min(y1, y2), max(x1, x2) - min(x1, x2), max(y1, y2) - min(y1, y2)}
				for _, f := range all {
					if f.box.overlaps(around) {
						t.Errorf("%s crosses %s at %+v", d, f.name, f.box)
					}
				}
			}
		}
	})
}

// Each known session has a line from the broker's rail to the site, and unknown ones have none.
func TestSessions(t *testing.T) {
	each(t, func(t *testing.T, g Grid, m Map) {
		for i, b := range m.Brokers {
			want := map[string]int{}
			for _, s := range g.Sites {
				if s.Sessions[i] > Unknown {
					want[map[Session]string{Open: "open", Closed: "closed"}[s.Sessions[i]]]++
				}
			}
			got := map[string]int{}
			for _, l := range b.Sessions {
				got[l.Class]++
				n := numbers(l.D)
				ends := false
				for _, s := range m.Sites {
					ends = ends || n[1] > s.Y && n[1] < s.bottom() && (n[2] == s.X && n[0] < s.X || n[2] == s.right() && n[0] > s.right())
				}
				if !ends || n[0] < 0 || n[0] > m.Width {
					t.Errorf("session %s ends at no site", l.D)
				}
			}
			if !reflect.DeepEqual(got, want) || (b.Rail == "") != (len(want) == 0) {
				t.Errorf("broker %d has sessions %v, rail %q, want %v", i, got, b.Rail, want)
			}
		}
		if (m.Spine == "") != (len(g.Proxies) == 0) {
			t.Errorf("%d proxies have the line %q", len(g.Proxies), m.Spine)
		}
		if n := numbers(m.Spine); len(n) > 0 {
			if b := m.Brokers[0]; n[0] <= b.X || n[0] >= b.right() || n[1] != b.bottom() {
				t.Errorf("the line to the proxies %q does not begin at the first broker at %+v", m.Spine, b.Box)
			}
			for i, p := range m.Proxies {
				if at := n[5+3*i:]; at[2] != p.X || at[1] <= p.Y || at[1] >= p.bottom() || at[0] != n[3] || at[1] > n[4] {
					t.Errorf("the line %q does not lead to the proxy at %+v", m.Spine, p.Box)
				}
			}
		}
	})
}

// Each host has a mark of its state's shape, or is counted; a mark is inside its site's box. Hosts
// that are not up are drawn first.
func TestHosts(t *testing.T) {
	commands := map[string]string{"up": "Maaz", "unknown": "Maaz", "away": "Mlml"}
	each(t, func(t *testing.T, g Grid, m Map) {
		for _, s := range m.Sites {
			marks, away, isAway := 0, 0, 0
			for _, h := range s.Hosts {
				if h.State == offer.Away {
					isAway++
				}
			}
			for _, mark := range s.Marks {
				letters := strings.Map(func(r rune) rune {
					if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
						return r
					}
					return -1
				}, mark.D)
				n := strings.Count(mark.D, "M")
				if letters != strings.Repeat(commands[mark.State], n) {
					t.Errorf("marks of hosts that are %s: %s", mark.State, mark.D)
				}
				marks += n
				if mark.State == "away" {
					away = n
				}
				for _, at := range regexp.MustCompile(`M(\d+) (\d+)`).FindAllStringSubmatch(mark.D, -1) {
					x, _ := strconv.Atoi(at[1])
					y, _ := strconv.Atoi(at[2])
					last := s.Texts[len(s.Texts)-1]
					if s.Drawn < len(s.Hosts) && last.Class == "host" && (Box{x, y, 1, 1}).overlaps(Box{last.X, last.Y - 8, textWidth(last.Text, textChar), 9}) {
						t.Errorf("%s at %+v: a mark at %d %d is behind %q", s.ID, s.Box, x, y, last.Text)
					}
					if x <= s.X || x >= s.right() || y <= s.Y+headingHeight-pad || y >= s.bottom() {
						t.Errorf("%s at %+v: a mark is at %d %d", s.ID, s.Box, x, y)
					}
				}
			}
			more := fmt.Sprintf("+%d", len(s.Hosts)-marks)
			if last := s.Texts[len(s.Texts)-1].Text; marks != s.Drawn || (marks < len(s.Hosts)) != (last == more) {
				t.Errorf("%s has %d hosts, %d marks, and says %q", s.ID, len(s.Hosts), marks, last)
			}
			if want := min(marks, isAway); away != want {
				t.Errorf("%s has %d marks, %d of the %d that are away", s.ID, marks, away, want)
			}
			if len(s.Hosts) > 0 && marks == 0 {
				t.Errorf("%s has no mark for its %d hosts", s.ID, len(s.Hosts))
			}
		}
	})
}

// Few hosts have their names.
func TestHostNames(t *testing.T) {
	m := Draw(sample(2, 6, 1, 1), 960)
	for _, s := range m.Sites {
		var names []string
		for _, text := range s.Texts {
			if text.Class == "host" {
				names = append(names, text.Text)
			}
		}
		var want []string
		for _, h := range s.Hosts {
			want = append(want, h.Node.Name)
		}
		if !reflect.DeepEqual(names, want) {
			t.Errorf("%s names %v, want %v", s.ID, names, want)
		}
	}
}

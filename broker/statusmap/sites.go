package statusmap

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/isthmus-grid/isthmus/launch/offer"
)

// Hosts are drawn as marks with their names where there is room, else as marks alone, and what has
// no room is counted.
const (
	hostHeight   = 17  // of a mark with a name
	hostMark     = 16  // width of the mark beside a name
	maxHostName  = 103 // width of a name
	namedRows    = 3   // rows of names for which a box grows
	markRows     = 5   // rows of marks for which a box grows
	smallestMark = 9   // distance of marks
	usualMark    = 13
	largestMark  = 18
)

// naturalHeight returns the height of a column of sites whose boxes are as high as they need to be.
func naturalHeight(sites []*SiteBox, width int) int {
	height := gap * max(len(sites)-1, 0)
	for _, s := range sites {
		height += s.natural(width)
	}
	return height
}

// natural returns the height that a site's box needs.
func (s *SiteBox) natural(width int) int {
	return headingHeight + hostsHeight(s.Hosts, width-2*pad) + pad
}

// hostsHeight returns the height of the area for hosts.
func hostsHeight(hosts []offer.Host, width int) int {
	if rows := rowsOf(len(hosts), width/min(namedWidth(hosts), width)); rows <= namedRows {
		return rows * hostHeight
	}
	return min(rowsOf(len(hosts), width/usualMark), markRows) * usualMark
}

func rowsOf(n, perRow int) int { return (n + perRow - 1) / perRow }

// namedWidth returns the width that the longest name needs, with its mark.
func namedWidth(hosts []offer.Host) int {
	longest := 0
	for _, h := range hosts {
		longest = max(longest, textWidth(h.Node.Name, textChar))
	}
	return hostMark + min(longest, maxHostName) + pad
}

// stackSites places boxes of sites below each other, all together of the given height.
func stackSites(sites []*SiteBox, column Box, top, height int) {
	extra := height - naturalHeight(sites, column.W)
	y := top
	for i, s := range sites {
		share := extra / (len(sites) - i)
		extra -= share
		s.Box = Box{column.X, y, column.W, s.natural(column.W) + share}
		y += s.H + gap
	}
}

// fill draws what is in the site's box.
func (s *SiteBox) fill() {
	s.Texts = s.heading(string(s.ID), s.Note)
	if len(s.Hosts) == 0 {
		return
	}
	area := Box{s.X + pad, s.Y + headingHeight, s.W - 2*pad, s.H - headingHeight - pad}
	if rows := max(area.H/hostHeight, 1); rowsOf(len(s.Hosts), area.W/min(namedWidth(s.Hosts), area.W)) <= rows {
		s.fillNamed(area, min(rows, len(s.Hosts)))
		return
	}
	pitch := largestMark
	for pitch > smallestMark && (area.W/pitch)*(area.H/pitch) < len(s.Hosts) {
		pitch--
	}
	s.fillMarks(area, pitch)
}

// fillNamed draws each host with its name, in at most that many rows.
func (s *SiteBox) fillNamed(area Box, rows int) {
	s.Drawn = len(s.Hosts)
	perRow := rowsOf(len(s.Hosts), rows)
	width, height := area.W/perRow, min(area.H/rowsOf(len(s.Hosts), perRow), 2*hostHeight)
	at := func(i int) (x, y int) { return area.X + i%perRow*width, area.Y + i/perRow*height + height/2 }
	for i, h := range s.Hosts {
		x, y := at(i)
		s.Texts = append(s.Texts, Text{x + hostMark, y + 4, clip(h.Node.Name, textChar, min(maxHostName, width-hostMark)), "host"})
	}
	s.mark(s.Hosts, 5, func(i int) (x, y int) {
		x, y = at(i)
		return x + 6, y
	})
}

// fillMarks draws hosts without names, and how many more there are. Where not all fit, those that
// are not up come first.
func (s *SiteBox) fillMarks(area Box, pitch int) {
	perRow, rows := area.W/pitch, area.H/pitch
	shown := s.Hosts
	if perRow*rows < len(shown) {
		more := fmt.Sprintf("+%d", len(s.Hosts)) // as wide as the number can be
		width := textWidth(more, textChar)
		shown = slices.Clone(s.Hosts)
		slices.SortStableFunc(shown, func(a, b offer.Host) int { return cmp.Compare(min(b.State, offer.Away), min(a.State, offer.Away)) })
		shown = shown[:max(perRow*rows-rowsOf(width, pitch), 0)]
		more = fmt.Sprintf("+%d", len(s.Hosts)-len(shown))
		s.Texts = append(s.Texts, Text{area.X + area.W - textWidth(more, textChar), area.Y + area.H - 1, more, "host"})
	}
	s.Drawn = len(shown)
	s.mark(shown, pitch/2-1, func(i int) (x, y int) {
		return area.X + i%perRow*pitch + pitch/2, area.Y + i/perRow*pitch + pitch/2
	})
}

// mark draws marks of radius r: a disc for a host that is up, a cross for one that is away, a ring
// for one of which nothing is known.
func (s *SiteBox) mark(hosts []offer.Host, r int, at func(i int) (x, y int)) {
	paths := map[offer.State]*strings.Builder{}
	for i, h := range hosts {
		x, y := at(i)
		if paths[h.State] == nil {
			paths[h.State] = new(strings.Builder)
		}
		d := paths[h.State]
		if h.State == offer.Away {
			fmt.Fprintf(d, "M%d %dl%d %dm0 %dl%d %d", x-r, y-r, 2*r, 2*r, -2*r, -2*r, 2*r)
		} else {
			fmt.Fprintf(d, "M%d %da%d %d 0 1 0 %d 0a%d %d 0 1 0 %d 0z", x-r, y, r, r, 2*r, r, r, -2*r)
		}
	}
	for state := offer.Up; state <= offer.Unknown; state++ {
		if d := paths[state]; d != nil {
			s.Marks = append(s.Marks, Mark{state.String(), d.String()})
		}
	}
}

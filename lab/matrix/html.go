package matrix

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strconv"

	"github.com/isthmus-grid/isthmus/overlay"
)

//go:embed table.html
var pageText string

var page = template.Must(template.New("table").Parse(pageText))

// pageCell is a cell as shown on the page.
type pageCell struct {
	*Cell
	Color, Ink template.CSS
	Text       string // in the cell
	Fault      string
	Right      bool // so far right that its text must open to the left
	Reasons    []pageReason
}

type pageReason struct{ Technique, Reason, Mark string }

type pageRow struct {
	Name  string
	Cells []*pageCell // nil if there is none
}

type pageLegend struct {
	Name, Text string
	Color      template.CSS
}

// html writes the grid as one self-contained file: a cell shows its reasons when it is hovered over
// or has the focus.
func (t *table) html(w io.Writer) error {
	var data struct {
		Title, Totals string
		Columns       []string
		Rows          []pageRow
		Legends       []pageLegend
	}
	data.Title, data.Totals, data.Columns = t.title, t.totals(), t.presets
	for _, from := range t.presets {
		row := pageRow{Name: from}
		for j, to := range t.presets {
			c := newPageCell(t.at(from, to))
			if c != nil {
				c.Right = 2*j >= len(t.presets)
			}
			row.Cells = append(row.Cells, c)
		}
		data.Rows = append(data.Rows, row)
	}
	for _, l := range t.summary() {
		data.Legends = append(data.Legends, pageLegend{l.name, l.caption(), template.CSS(l.color)})
	}
	return page.Execute(w, data)
}

func newPageCell(c *Cell) *pageCell {
	if c == nil {
		return nil
	}
	l := legendOf(c)
	p := &pageCell{
		Cell: c, Fault: c.Fault(), Text: label(c),
		Color: template.CSS(l.color), Ink: template.CSS(ink(l.color)),
	}
	for _, t := range overlay.Techniques() {
		mark := ""
		if t.String() == c.Technique {
			mark = "taken"
		}
		p.Reasons = append(p.Reasons, pageReason{t.String(), c.Reasons[t.String()], mark})
	}
	return p
}

// label returns the text of a cell: the set-up time in milliseconds.
func label(c *Cell) string {
	if !c.Connected {
		return "–"
	}
	return strconv.FormatFloat(c.SetupMS, 'f', 0, 64)
}

// ink returns the color of a text that is readable on a color. Both are like #rrggbb.
func ink(back string) string {
	r, g, b := rgb(back)
	if light := 299*int(r) + 587*int(g) + 114*int(b); light < 145_000 {
		return "#ffffff"
	}
	return "#20262e"
}

// rgb reads a color.
func rgb(text string) (r, g, b uint8) {
	fmt.Sscanf(text, "#%02x%02x%02x", &r, &g, &b)
	return r, g, b
}

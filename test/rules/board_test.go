package rules

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// The look of a board is for people to judge; this test checks that its panels do not overlap, have
// descriptions and count nothing twice.
func TestBoard(t *testing.T) {
	type place struct{ X, Y, W, H int }
	var board struct {
		Panels []struct {
			ID                       int
			Type, Title, Description string
			GridPos                  place
			FieldConfig              struct{ Defaults struct{ Unit string } }
			Targets                  []struct{ RefID, Expr, LegendFormat string }
		}
	}
	if err := json.Unmarshal([]byte(labtest.ReadFile(t, "deploy/grafana/isthmus.json")), &board); err != nil {
		t.Fatal(err)
	}
	ids := map[int]bool{}
	for i, p := range board.Panels {
		if ids[p.ID] || p.Title == "" {
			t.Errorf("panel %d, %q: its id is another's, or it has no title", p.ID, p.Title)
		}
		ids[p.ID] = true
		at := p.GridPos
		if at.X < 0 || at.Y < 0 || at.W < 1 || at.H < 1 || at.X+at.W > 24 { // a board is 24 columns wide
			t.Errorf("panel %q is outside the board: %+v", p.Title, at)
		}
		for _, q := range board.Panels[:i] {
			if o := q.GridPos; at.X < o.X+o.W && o.X < at.X+at.W && at.Y < o.Y+o.H && o.Y < at.Y+at.H {
				t.Errorf("panel %q lies on %q", p.Title, q.Title)
			}
		}
		if p.Type == "row" {
			continue
		}
		if !strings.HasSuffix(p.Description, ".") || p.FieldConfig.Defaults.Unit == "" {
			t.Errorf("panel %q: its description is %q, its unit %q", p.Title, p.Description, p.FieldConfig.Defaults.Unit)
		}
		refs := map[string]bool{}
		for _, q := range p.Targets {
			if q.RefID == "" || refs[q.RefID] {
				t.Errorf("panel %q: two of its queries are called %q", p.Title, q.RefID)
			}
			refs[q.RefID] = true
			if p.Type == "timeseries" && q.LegendFormat == "" {
				t.Errorf("panel %q: the lines of %s have no names", p.Title, q.Expr)
			}
			for _, label := range regexp.MustCompile(`{{(\w+)}}`).FindAllStringSubmatch(q.LegendFormat, -1) {
				if by := regexp.MustCompile(`(?:sum|max) by \(([^)]*)\)`).FindStringSubmatch(q.Expr); by != nil && !strings.Contains(", "+by[1]+",", ", "+label[1]+",") {
					t.Errorf("panel %q names lines by %s, which %s leaves out", p.Title, label[1], q.Expr)
				}
			}
			// Two brokers get the same reports: a sum over both would show everything twice.
			if regexp.MustCompile(`isthmus_(?:broker|attempts?)_`).MatchString(q.Expr) && !strings.Contains(q.Expr, "max") {
				t.Errorf("panel %q adds up what each broker counts for itself: %s", p.Title, q.Expr)
			}
		}
	}
}

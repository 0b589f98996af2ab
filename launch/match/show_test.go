package match

import (
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"

	"github.com/isthmus-grid/isthmus/internal/job/jobgroups"
)

// Layout returns the groups in the form that the program gets.
func (m *Match) Layout() jobgroups.Layout {
	l := make(jobgroups.Layout, len(m.Groups))
	for i, g := range m.Groups {
		l[i] = jobgroups.Group{Name: g.Name, Count: g.Count}
	}
	return l
}

// WriteTable writes the match as a table: one line for each share.
func (m *Match) WriteTable(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "GROUP\tSITE\tHOST\tPROCESSES\tRANKS")
	for _, g := range m.Groups {
		for _, s := range g.Hosts {
			ranks := strconv.Itoa(s.First)
			if s.Count > 1 {
				ranks += "-" + strconv.Itoa(s.First+s.Count-1)
			}
			fmt.Fprintf(tw, "%s\t%s\t%s\t%d\t%s\n", g.Name, s.Node.Site, s.Node.Name, s.Count, ranks)
		}
	}
	return tw.Flush()
}

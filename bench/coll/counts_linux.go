package coll

import (
	"errors"
	"fmt"

	"github.com/isthmus-grid/isthmus/bench"
)

// crossings makes our jobs call the collective once, and returns what crossed between sites
// beside the values that the schedules and the table predict.
func (r *run) crossings(s *scenario, f figure, jobs []*job) (rows []bench.Row, err error) {
	for _, j := range jobs {
		words, err := j.do(fmt.Sprintf("%s %s %d %d", orderCount, f.collective, f.size, r.Root))
		if errors.Is(err, errRefused) {
			fmt.Fprintf(r.Err, "bench coll: %s: %s: %v\n", s.name, j.implementation(f.collective), err)
			continue
		}
		if err != nil {
			return nil, err
		}
		got, err := s.crossed(words)
		if err != nil {
			return nil, fmt.Errorf("%v: %w", j.head, err)
		}
		algorithm := j.algorithm(j.forced[f.collective])
		messages := s.row(f, &j.series, "wan_messages")
		messages.Value, messages.Unit = float64(got.messages), "messages"
		bytes := s.row(f, &j.series, "wan_bytes")
		bytes.Value, bytes.Unit = float64(got.bytes), "bytes"
		if algorithm == "" {
			like, err := s.like(f, r.Root, got)
			if err != nil {
				return nil, err
			}
			rows = append(rows, as(messages, like), as(bytes, like))
			continue
		}
		want, err := s.scheduled(f, algorithm, r.Root)
		if err != nil {
			return nil, err
		}
		rows = append(rows, beside(messages, "schedule", want.messages), beside(bytes, "schedule", want.bytes))
		if want, ok := s.tabled(f, algorithm); ok {
			rows = append(rows, beside(messages, "table", want.messages), beside(bytes, "table", want.bytes))
		}
	}
	return rows, nil
}

// as returns the row with the name of the algorithm whose schedules send the same between sites.
func as(row bench.Row, algorithm string) bench.Row {
	row.Against, row.Ratio = "schedule of "+algorithm, 1
	if algorithm == "" {
		row.Against, row.Ratio = "any schedule", 0
	}
	return row.Within(1, 0)
}

// beside returns the row with the value that it must equal.
func beside(row bench.Row, what string, want int) bench.Row {
	if want == 0 { // there is no ratio
		return row.Within(0, 0)
	}
	row.Against, row.Ratio = what, row.Value/float64(want)
	return row.Within(1, 0)
}

// crossed adds up the traffic between sites that an answer reports.
func (s *scenario) crossed(words []string) (c crossing, err error) {
	for _, w := range words {
		var from, to, messages, bytes int
		if _, err := fmt.Sscanf(w, "%d:%d:%d:%d", &from, &to, &messages, &bytes); err != nil {
			return c, fmt.Errorf("said %q for what went from one rank to another: %w", w, err)
		}
		if s.site(from) != s.site(to) {
			c.messages += messages
			c.bytes += bytes
		}
	}
	return c, nil
}

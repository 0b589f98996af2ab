package coll

import (
	"errors"
	"fmt"

	"github.com/isthmus-grid/isthmus/bench"
	"github.com/isthmus-grid/isthmus/lab/wan"
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
		if r.Packets && s.far() {
			some, err := r.packets(s, f, j, got)
			if err != nil {
				return nil, fmt.Errorf("%v: %w", j.head, err)
			}
			rows = append(rows, some...)
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

// seenCalls is the number of calls whose packets are counted together.
const seenCalls = 20

// packets makes a job repeat the call, and returns what the emulator saw of each beside what the
// ranks say: got. Barriers between the calls, which are counted alone and subtracted, keep ranks
// together.
func (r *run) packets(s *scenario, f figure, j *job, got crossing) ([]bench.Row, error) {
	var seen [2]crossing
	for i, collective := range []string{noCall, f.collective.String()} {
		before := s.wide(r.traffic())
		if _, err := j.do(fmt.Sprintf("%s %s %d %d %d", orderCalls, collective, f.size, r.Root, seenCalls)); err != nil {
			return nil, err
		}
		after := s.wide(r.traffic())
		seen[i] = crossing{after.messages - before.messages, after.bytes - before.bytes}
	}
	return s.seen(f, &j.series, got, crossing{seen[1].messages - seen[0].messages, seen[1].bytes - seen[0].bytes}), nil
}

// wide adds up what the emulator has carried between sites.
func (s *scenario) wide(traffic []wan.Counter) (c crossing) {
	sites := map[string]bool{}
	for i := range s.sites {
		sites[siteName(i)] = true
	}
	for _, t := range traffic {
		if sites[t.From] && sites[t.To] {
			c.messages += int(t.Messages)
			c.bytes += int(t.Bytes)
		}
	}
	return c
}

// Of messages of manyBytes or more, headers of IP, TCP, TLS and frames, and acknowledgements, are at most
// this part.
const (
	manyBytes  = 16 * kib
	maxHeaders = 0.1
)

// seen returns rows for what the emulator saw of seenCalls calls. Bytes are judged where messages have many. The
// number of messages is not: acknowledgements of links are segments, too, and two messages may share one.
func (s *scenario) seen(f figure, m *series, got, all crossing) []bench.Row {
	messages := s.row(f, m, "emulator_messages")
	messages.Value, messages.Unit = float64(all.messages)/seenCalls, "messages"
	bytes := s.row(f, m, "emulator_bytes")
	bytes.Value, bytes.Unit = float64(all.bytes)/seenCalls, "bytes"
	if got.messages > 0 {
		messages.Against, messages.Ratio = "links", messages.Value/float64(got.messages)
	}
	if got.bytes > 0 {
		bytes.Against, bytes.Ratio = "links", bytes.Value/float64(got.bytes)
	}
	if got.bytes >= manyBytes*got.messages && got.bytes > 0 {
		bytes = bytes.Within(1+maxHeaders/2, maxHeaders/2)
	}
	return []bench.Row{messages, bytes}
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

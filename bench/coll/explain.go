package coll

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/isthmus-grid/isthmus/collectives"
)

// Explain measures nothing: it writes the times that package collectives predicts for each
// algorithm in the requested scenarios, and every rank's steps of the algorithm that it would
// choose. It runs on any system.
func Explain(w io.Writer, o Options) error {
	if err := o.Check(); err != nil {
		return err
	}
	for _, s := range o.scenarios() {
		figures, _, err := o.figures(&s)
		if err != nil {
			return err
		}
		for _, f := range figures {
			if o.Only != nil && !o.Only.MatchString(f.key(&s, nameOurs)) {
				continue
			}
			if err := s.explain(w, f, o.Root); err != nil {
				return fmt.Errorf("%s: %s of %d bytes: %w", s.name, f.collective, f.size, err)
			}
		}
	}
	return nil
}

func (s *scenario) explain(w io.Writer, f figure, root int) error {
	choices, err := s.predicted(f, root)
	if err != nil {
		return err
	}
	least, err := s.bound(f.collective, f.size)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "%s: %s of %d bytes, at least %.3f ms\n", s.name, f.collective, f.size, float64(least)/1e6)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "ALGORITHM\tPREDICTED\tMESSAGES BETWEEN SITES\tBYTES")
	for _, choice := range choices {
		name, t := choice.Algorithm.Name, choice.Predicted
		c, err := s.scheduled(f, name, root)
		if err != nil {
			return err
		}
		predicted := "unknown" // within a site a table decides
		if t > 0 {
			predicted = fmt.Sprintf("%.3f ms", float64(t)/1e6)
		}
		fmt.Fprintf(tw, "%s\t%s\t%d\t%d\n", name, predicted, c.messages, c.bytes)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	a := choices[0].Algorithm
	if a.Needs.Has(collectives.SharedMemory) {
		_, err = fmt.Fprintf(w, "\n%s: no messages: every rank posts to shared memory and reads from it\n\n", a.Name)
		return err
	}
	places := s.places()
	for rank, place := range places {
		fmt.Fprintf(w, "\n%s, at %s: %v", a.Name, place, a.Schedule(rank, len(places), s.layout(), arguments(f, rank, len(places), root)))
	}
	_, err = fmt.Fprintln(w)
	return err
}

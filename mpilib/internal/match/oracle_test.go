package match

import (
	"fmt"
	"slices"
)

// The table as an engine has it, with owners that point back.
type (
	table   = Table[*request, *arrival]
	receive = Receive[*request]
	message = Message[*arrival]
	request struct{ receive receive }
	arrival struct{ message message }
)

func posted(source, tag int32) *receive {
	r := &request{}
	r.receive = receive{Source: source, Tag: tag, Owner: r}
	return &r.receive
}

func kept(source, tag int32) *message {
	m := &arrival{}
	m.message = message{Source: source, Tag: tag, Owner: m}
	return &m.message
}

// oracle is the simple Table: two slices in order, searched from the front.
type oracle struct {
	posted []*receive
	kept   []*message
}

func satisfies(wantSource, wantTag, source, tag int32) bool {
	return (wantSource == AnySource || wantSource == source) && (wantTag == AnyTag || wantTag == tag)
}

func (o *oracle) arrive(source, tag int32) *receive {
	for i, r := range o.posted {
		if satisfies(r.Source, r.Tag, source, tag) {
			o.posted = slices.Delete(o.posted, i, i+1)
			return r
		}
	}
	return nil
}

func (o *oracle) peek(source, tag int32) *message {
	for _, m := range o.kept {
		if satisfies(source, tag, m.Source, m.Tag) {
			return m
		}
	}
	return nil
}

func (o *oracle) take(source, tag int32) *message {
	m := o.peek(source, tag)
	o.remove(m)
	return m
}

func (o *oracle) withdraw(r *receive) bool {
	n := len(o.posted)
	o.posted = slices.DeleteFunc(o.posted, func(x *receive) bool { return x == r })
	return len(o.posted) < n
}

func (o *oracle) remove(m *message) bool {
	n := len(o.kept)
	o.kept = slices.DeleteFunc(o.kept, func(x *message) bool { return x == m })
	return len(o.kept) < n
}

func (o *oracle) waits(source int32) bool {
	return slices.ContainsFunc(o.posted, func(r *receive) bool { return r.Source == AnySource || r.Source == source })
}

// pair is a table and its oracle, which get the same calls.
type pair struct {
	t table
	o oracle
}

func (p *pair) arrive(source, tag int32) (*receive, error) {
	want := p.o.arrive(source, tag)
	got := p.t.Arrive(source, tag)
	if got != want {
		return nil, fmt.Errorf("Arrive(%d, %d) = %v, want %v", source, tag, show(got), show(want))
	}
	return got, nil
}

func (p *pair) take(source, tag int32) (*message, error) {
	want := p.o.take(source, tag)
	got := p.t.Take(source, tag)
	if got != want {
		return nil, fmt.Errorf("Take(%d, %d) = %v, want %v", source, tag, showMessage(got), showMessage(want))
	}
	return got, nil
}

// post and keep are the engine's second steps.
func (p *pair) post(r *receive) { p.t.Post(r); p.o.posted = append(p.o.posted, r) }
func (p *pair) keep(m *message) { p.t.Keep(m); p.o.kept = append(p.o.kept, m) }

// agree compares all results of calls that do not change the two, for sources and tags below n.
func (p *pair) agree(n int32) error {
	if got, want := p.t.Empty(), len(p.o.posted)+len(p.o.kept) == 0; got != want {
		return fmt.Errorf("Empty() = %v", got)
	}
	i := 0
	for r := range p.t.Posted {
		if i >= len(p.o.posted) || p.o.posted[i] != r || r.Owner != nil && &r.Owner.receive != r {
			return fmt.Errorf("Posted: number %d is %v", i, show(r))
		}
		i++
	}
	if i != len(p.o.posted) {
		return fmt.Errorf("Posted: %d, want %d", i, len(p.o.posted))
	}
	i = 0
	for m := range p.t.Messages {
		if i >= len(p.o.kept) || p.o.kept[i] != m || m.Owner != nil && &m.Owner.message != m {
			return fmt.Errorf("Messages: number %d is %v", i, showMessage(m))
		}
		i++
	}
	if i != len(p.o.kept) {
		return fmt.Errorf("Messages: %d, want %d", i, len(p.o.kept))
	}
	for s := int32(AnySource); s < n; s++ {
		if got, want := p.t.Waits(s), p.o.waits(s); s >= 0 && got != want {
			return fmt.Errorf("Waits(%d) = %v", s, got)
		}
		for g := int32(AnyTag); g < n; g++ {
			if got, want := p.t.Peek(s, g), p.o.peek(s, g); got != want {
				return fmt.Errorf("Peek(%d, %d) = %v, want %v", s, g, showMessage(got), showMessage(want))
			}
		}
	}
	return nil
}

func show(r *receive) string {
	if r == nil {
		return "none"
	}
	return fmt.Sprintf("receive{%d %d}#%d", r.Source, r.Tag, r.seq)
}

func showMessage(m *message) string {
	if m == nil {
		return "none"
	}
	return fmt.Sprintf("message{%d %d}#%d", m.Source, m.Tag, m.seq)
}

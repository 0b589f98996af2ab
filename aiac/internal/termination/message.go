package termination

import "github.com/isthmus-grid/isthmus/aiac/internal/register"

// Kind is the kind of a message.
type Kind uint8

// The kinds of messages; the package documentation has their meaning.
const (
	News   Kind = iota + 1 // register
	Ready                  // register round ready:u8
	Freeze                 // register round
	Block                  // register round; the copy of the block follows
	Part                   // register round residual:f64
	Resume                 // register round
	Done                   // register round residual:f64 register(of the wave)
)

// String returns the kind's name.
func (k Kind) String() string {
	names := [...]string{"no kind", "news", "ready", "freeze", "block", "part", "resume", "done"}
	if int(k) < len(names) {
		return names[k]
	}
	return "unknown kind"
}

// A Message is what one task sends to another. The fields after View are of the kinds that
// have them.
type Message struct {
	Kind     Kind
	View     register.Register // what the sender knows
	Round    uint32            // the number of the wave in its view, from 1; of Ready: of the one that may come
	Ready    bool
	Residual float64           // of Part: combined as by [Norm]; of Done: of the whole vector
	Decided  register.Register // of Done: the view of the wave
}

// An Envelope is a message to a process.
type Envelope struct {
	Process uint32
	Message Message
}

// A Wave is one attempt to end: at most one is under way in a view. No two waves of a job are
// Equal.
type Wave struct {
	View  register.Register
	Round uint32
}

// Equal reports whether both are the same wave.
func (w Wave) Equal(o Wave) bool { return w.Round == o.Round && w.View.Equal(o.View) }

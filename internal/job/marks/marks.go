// Package marks puts marks into the output of a process and takes them out again. A mark says where in its output a process was when its
// state was saved, or loaded, or a new replica joined its rank: only the output itself has an order with what the program writes. A process of a job
// with a secret writes marks; whoever knows the secret takes them out, and others see an
// application program command (ECMA-48, section 8.3.2), which terminals ignore.
//
// It keeps no state besides a Reader's, and knows neither jobs nor ranks.
package marks

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"io"
)

// Env has the secret in the environment of a process. Without it the process writes no marks.
const Env = "ISTHMUS_OUTPUT_MARKS"

// A Kind says what happened.
type Kind byte

// The kinds.
const (
	Saved  Kind = 's'
	Loaded Kind = 'l' // the process goes on with it
	Joined Kind = 'j' // another process does, and is one of the rank's from here on; the ID is its Number
)

// A Mark is one of a process's output. Saved and Loaded of one state have the same ID.
type Mark struct {
	Kind Kind
	ID   ID
}

// An ID is a state's, or stands for a process.
type ID [8]byte

// ProcessID returns the ID that stands for a process of the job, by its number.
func ProcessID(number int) (id ID) {
	binary.BigEndian.PutUint64(id[:], uint64(number))
	return id
}

// Number returns the number of the process that id stands for.
func (id ID) Number() int { return int(binary.BigEndian.Uint64(id[:])) }

// NewID returns one that no other state has.
func NewID() (id ID) {
	rand.Read(id[:])
	return id
}

// NewSecret returns the secret of a job.
func NewSecret() string { return rand.Text() }

// Of a mark: head secret ':' kind id tail, the id in hexadecimal digits. It is shorter than what POSIX
// has a pipe write at once.
const (
	head = "\x1b_isthmus:"
	tail = "\x1b\\"
	last = 1 + 2*len(ID{}) + len(tail) // after the colon
)

// maxSecret keeps a mark short.
const maxSecret = 64

// Write writes a mark, by one call of w's.
func Write(w io.Writer, secret string, m Mark) error {
	text := append([]byte(head), secret[:min(len(secret), maxSecret)]...)
	text = append(text, ':', byte(m.Kind))
	text = append(hex.AppendEncode(text, m.ID[:]), tail...)
	_, err := w.Write(text)
	return err
}

// A Reader takes the marks out of a stream. It is not safe for concurrent use.
type Reader struct {
	start []byte // of a mark
	held  []byte // the end of what was read, which may be the beginning of a mark
}

// NewReader returns one for a job with the given secret.
func NewReader(secret string) *Reader {
	return &Reader{start: []byte(head + secret[:min(len(secret), maxSecret)] + ":")}
}

// Read takes the next piece of the stream. It calls write with what the program wrote, and mark for each
// mark, in their order.
func (r *Reader) Read(data []byte, write func([]byte), mark func(Mark)) {
	data = append(r.held, data...)
	r.held = nil
	for {
		at := bytes.Index(data, r.start)
		if at < 0 {
			at = len(data) - r.begun(data)
		}
		if at > 0 {
			write(data[:at])
		}
		if data = data[at:]; len(data) < len(r.start)+last {
			r.held = bytes.Clone(data)
			return
		}
		text := data[len(r.start):]
		m := Mark{Kind: Kind(text[0])}
		hex.Decode(m.ID[:], text[1:]) // who knows the secret writes it right
		mark(m)
		data = text[last:]
	}
}

// begun returns how many bytes at the end of data may be the beginning of a mark's start.
func (r *Reader) begun(data []byte) int {
	for n := min(len(data), len(r.start)-1); n > 0; n-- {
		if bytes.HasSuffix(data, r.start[:n]) {
			return n
		}
	}
	return 0
}

// End returns what was held back, at the end of the stream.
func (r *Reader) End() []byte {
	held := r.held
	r.held = nil
	return held
}

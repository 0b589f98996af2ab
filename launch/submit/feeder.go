package submit

import (
	"io"
	"sync"

	"github.com/isthmus-grid/isthmus/launch/gate/gatepb"
)

// Bounds on the input in flight.
const (
	inputAhead = 256 << 10 // beyond what rank 0 took
	inputPiece = 64 << 10
)

// feeder keeps the input that was read but not yet taken by rank 0, so that it can be sent again
// after a stream broke.
type feeder struct {
	poke func() // signals that there may be something to send

	mu    sync.Mutex // guards the fields below
	room  sync.Cond  // signalled when less is held, or the feeder has ended
	held  []byte     // bytes from taken on
	taken uint64
	sent  uint64 // at least taken
	ended bool   // end of the input was read
	told  bool   // and sent to the node
	over  bool   // no more input is wanted
}

func newFeeder(poke func()) *feeder {
	f := &feeder{poke: poke}
	f.room.L = &f.mu
	return f
}

// read reads the input to its end, or until close. It may still block in a Read after that.
func (f *feeder) read(r io.Reader) {
	buf := make([]byte, inputPiece)
	for {
		n, err := r.Read(buf)
		f.mu.Lock()
		for len(f.held)+n > inputAhead && !f.over {
			f.room.Wait()
		}
		f.held = append(f.held, buf[:n]...)
		f.ended = err != nil
		over := f.over || f.ended
		f.mu.Unlock()
		f.poke()
		if over {
			return
		}
	}
}

// close makes read return.
func (f *feeder) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.over = true
	f.room.Broadcast()
}

// next returns the next piece to send, nil if there is none.
func (f *feeder) next() *gatepb.ToNode {
	f.mu.Lock()
	defer f.mu.Unlock()
	rest := f.held[f.sent-f.taken:]
	piece := rest[:min(len(rest), inputPiece)]
	end := f.ended && len(piece) == len(rest)
	if f.over || len(piece) == 0 && (!end || f.told) {
		return nil
	}
	m := &gatepb.Input{Offset: f.sent, Data: append([]byte(nil), piece...), End: end}
	f.sent += uint64(len(piece))
	f.told = end
	return &gatepb.ToNode{Say: &gatepb.ToNode_Input{Input: m}}
}

// acknowledged records how much rank 0 took.
func (f *feeder) acknowledged(bytes uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if bytes > f.taken && bytes <= f.sent {
		f.held = append(f.held[:0], f.held[bytes-f.taken:]...)
		f.taken = bytes
		f.room.Broadcast()
	}
}

// restart resumes after the stream broke: it sends again what was not taken.
func (f *feeder) restart(taken uint64) {
	f.acknowledged(taken)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sent, f.told = f.taken, false
}

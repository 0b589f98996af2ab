package submit

import (
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/isthmus-grid/isthmus/launch/nodeservice/nodepb"
)

// Bounds on the input in flight.
const (
	inputAhead  = 256 << 10 // beyond what a process took
	inputBehind = 4 << 20   // beyond what the slowest replica of rank 0 took; the others then wait for it, until it is given up
	inputPiece  = 64 << 10
)

// stdin is the input of rank 0, all of which goes to each replica. It keeps what was read but not yet
// taken by all of them, so that it can be sent again after a stream broke. Safe for concurrent use.
type stdin struct {
	mu      sync.Mutex // guards the fields below, and the feeders
	room    sync.Cond  // signalled when there may be room, or no more is wanted
	feeders []*feeder  // of the replicas that take input
	held    []byte     // bytes from start on
	start   uint64
	ended   bool // end of the input was read
	over    bool // no more input is wanted
	byLine  bool // a terminal's: each Read waits until a process waits for more. Otherwise only the first does
	wanted  bool // a process has waited for input, or nobody else could have it
}

func newStdin() *stdin {
	in := &stdin{}
	in.room.L = &in.mu
	return in
}

// read reads the input to its end, or until no feeder wants any. It may still block in a Read after
// that. It reads nothing before a process waits for it: an input that none reads is left to whoever has
// it next, such as the loop of a shell, or the shell itself.
func (in *stdin) read(r io.Reader) {
	buf := make([]byte, inputPiece)
	for in.isWantedNow() {
		n, err := r.Read(buf)
		in.mu.Lock()
		for !in.over && !in.hasRoom(n) {
			in.room.Wait()
		}
		in.held = append(in.held, buf[:n]...)
		in.ended = err != nil
		over := in.over || in.ended
		for _, f := range in.feeders {
			f.poke()
		}
		in.mu.Unlock()
		if over {
			return
		}
	}
}

// isWantedNow waits until a process waits for input, and reports false if none will.
func (in *stdin) isWantedNow() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	for !in.over && !in.isWanted() {
		in.room.Wait()
	}
	return !in.over
}

// isWanted reports whether to read more. The caller must hold mu.
func (in *stdin) isWanted() bool {
	if in.wanted && !in.byLine {
		return true
	}
	end := in.start + uint64(len(in.held))
	for _, f := range in.feeders {
		if !f.onDemand || f.wants && f.taken == end {
			in.wanted = true
			return true
		}
	}
	return len(in.feeders) == 0
}

// hasRoom reports whether n more bytes may be kept. The caller must hold mu.
func (in *stdin) hasRoom(n int) bool {
	first := in.start
	for _, f := range in.feeders {
		first = max(first, f.taken)
	}
	return len(in.held)+n <= min(inputBehind, int(first-in.start)+inputAhead)
}

// trim drops what all have taken. The caller must hold mu.
func (in *stdin) trim() {
	least := in.start + uint64(len(in.held))
	for _, f := range in.feeders {
		least = min(least, f.taken)
	}
	if len(in.feeders) > 0 && least > in.start {
		in.held = append(in.held[:0], in.held[least-in.start:]...)
		in.start = least
	}
	in.room.Broadcast()
}

// close makes read return.
func (in *stdin) close() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.over = true
	in.room.Broadcast()
}

// feeder sends the input to one replica of rank 0.
type feeder struct {
	in   *stdin
	poke func() // signals that there may be something to send; it does not block

	// Guarded by in.mu.
	taken   uint64
	sent    uint64 // on this stream; at least taken
	most    uint64 // that was sent on any
	endSent bool   // the end of the input was sent

	onDemand bool // its node says when the process waits for input
	wants    bool // it does, for more than taken
}

// setDemand records whether the node says when its process waits for input.
func (f *feeder) setDemand(says bool) {
	f.in.mu.Lock()
	defer f.in.mu.Unlock()
	f.onDemand = says
}

// demanded records whether the process waits for more than what it took. It follows acknowledged.
func (f *feeder) demanded(bytes uint64, wants bool) {
	f.in.mu.Lock()
	defer f.in.mu.Unlock()
	if bytes == f.taken {
		f.wants = wants
	}
	f.in.room.Broadcast()
}

// join makes the feeder send, from the first byte on. Call it before anything is read.
func (f *feeder) join() {
	f.in.mu.Lock()
	defer f.in.mu.Unlock()
	f.in.feeders = append(f.in.feeders, f)
}

// leave makes the feeder send no more: others do not wait for it. After the last one, no more input is
// wanted.
func (f *feeder) leave() {
	f.in.mu.Lock()
	defer f.in.mu.Unlock()
	for i, other := range f.in.feeders {
		if other == f {
			f.in.feeders = append(f.in.feeders[:i:i], f.in.feeders[i+1:]...)
			f.in.over = f.in.over || len(f.in.feeders) == 0
			f.in.trim()
			return
		}
	}
}

func (f *feeder) hasJoined() bool {
	for _, other := range f.in.feeders {
		if other == f {
			return true
		}
	}
	return false
}

// next returns the next piece to send, nil if there is none.
func (f *feeder) next() *nodepb.ToNode {
	f.in.mu.Lock()
	defer f.in.mu.Unlock()
	if f.in.over || !f.hasJoined() {
		return nil
	}
	rest := f.in.held[f.sent-f.in.start:]
	piece := rest[:min(len(rest), inputPiece, inputAhead-int(f.sent-f.taken))]
	end := f.in.ended && len(piece) == len(rest)
	if len(piece) == 0 && (!end || f.endSent) {
		return nil
	}
	m := &nodepb.Input{Offset: f.sent, Data: append([]byte(nil), piece...), End: end}
	f.sent += uint64(len(piece))
	f.most = max(f.most, f.sent)
	f.endSent = end
	return &nodepb.ToNode{Say: &nodepb.ToNode_Input{Input: m}}
}

// acknowledged records how much the process took.
func (f *feeder) acknowledged(bytes uint64) {
	f.in.mu.Lock()
	defer f.in.mu.Unlock()
	f.took(bytes)
}

func (f *feeder) took(bytes uint64) {
	if f.hasJoined() && bytes > f.taken && bytes <= f.most {
		f.taken, f.sent, f.wants = bytes, max(f.sent, bytes), false // of what an earlier stream brought the node may say so late
		f.in.trim()
	}
}

// restart resumes after the stream broke: it sends again what was not taken.
func (f *feeder) restart(taken uint64) {
	f.in.mu.Lock()
	defer f.in.mu.Unlock()
	f.took(taken)
	f.sent, f.endSent, f.wants = f.taken, false, false
}

// isNull reports whether an input is that of jobs without any, of which nothing can be lost.
func isNull(r io.Reader) bool {
	f, ok := r.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	null, nullErr := os.Stat(os.DevNull)
	return err == nil && nullErr == nil && os.SameFile(info, null)
}

// isTerminal reports whether an input is the terminal of this process's session.
func isTerminal(r io.Reader) bool {
	f, ok := r.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP)
	return err == nil
}

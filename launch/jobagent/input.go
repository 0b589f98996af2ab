package jobagent

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/internal/job/ranks"
	"github.com/isthmus-grid/isthmus/launch/nodeservice/nodepb"
)

const (
	MaxInput   = 64 << 10  // bytes of input in one message
	inputAhead = 256 << 10 // bytes that were not taken
)

// input is the standard input of rank 0: at most inputAhead bytes that it has not read yet. Safe
// for concurrent use.
type input struct {
	mu      sync.Mutex
	changed chan struct{} // closed and replaced at every change
	data    []byte        // not taken yet
	start   uint64        // offset of data
	ended   bool          // no more follows
	wanted  uint64        // start + 1 when rank 0 was seen to wait for what follows it; 0: never

	progress chan struct{} // holds a value when more was taken
}

func newInput() *input {
	return &input{changed: make(chan struct{}), progress: make(chan struct{}, 1)}
}

func (in *input) change() {
	close(in.changed)
	in.changed = make(chan struct{})
}

// put adds the submitter's input. It skips bytes that were taken before; the rest must continue
// where the last message ended, and must not exceed the window.
func (in *input) put(m *nodepb.Input) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	end := in.start + uint64(len(in.data))
	if m.Offset > end || len(m.Data) > MaxInput {
		return fmt.Errorf("input of %d bytes from %d on, where %d are known; want at most %d bytes, in order", len(m.Data), m.Offset, end, MaxInput)
	}
	if known := end - m.Offset; known < uint64(len(m.Data)) && !in.ended {
		in.data = append(in.data, m.Data[known:]...)
	}
	if len(in.data) > inputAhead {
		return fmt.Errorf("%d bytes of input that rank 0 has not taken; at most %d are kept, wait for Taken", len(in.data), inputAhead)
	}
	in.ended = in.ended || m.End
	in.change()
	return nil
}

// close marks the end of the input.
func (in *input) close() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.ended = true
	in.change()
}

// taken returns how many bytes were taken, and whether rank 0 has read all of them and waits for more.
func (in *input) taken() (bytes uint64, wants bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.start, in.wanted == in.start+1
}

func (in *input) hasEnded() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.ended
}

// want records that rank 0 waits for more than it has taken, and reports whether it has taken that many
// bytes still.
func (in *input) want(taken uint64) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.start != taken || in.ended {
		return false
	}
	in.wanted = taken + 1
	return true
}

// How often it is looked whether rank 0 waits for input.
const (
	firstLook = 10 * time.Millisecond
	lastLook  = time.Second
)

// watch calls tell whenever the process pid has read what was written to pipe and waits for more, once for
// each number of bytes. It returns when over is closed, as the process has ended, and at the end of the input.
func (in *input) watch(pipe *os.File, pid int, over <-chan struct{}, tell func()) {
	wait := firstLook
	look := time.NewTimer(wait)
	defer look.Stop()
	for {
		select {
		case <-look.C:
		case <-in.progress:
			wait = firstLook
			look.Reset(wait)
			continue
		case <-over:
			return
		}
		taken, wants := in.taken()
		switch {
		case in.hasEnded():
			return
		case wants: // until more is taken
		case ranks.Wants(pid, pipe) && in.want(taken):
			tell()
		default:
			wait = min(wait*3/2, lastLook)
			look.Reset(wait)
		}
	}
}

// feed writes the input to w until it ends, and calls taken with the number of bytes taken. When
// w's reader has closed it, feed discards the rest of the input. It closes w, and returns at the
// latest when quit is closed.
func (in *input) feed(w io.WriteCloser, quit <-chan struct{}, taken func(uint64)) {
	deaf := false
	defer w.Close()
	for {
		in.mu.Lock()
		data, changed, ended := in.data, in.changed, in.ended
		in.mu.Unlock()
		if len(data) == 0 {
			if ended {
				return
			}
			select {
			case <-changed:
			case <-quit:
				return
			}
			continue
		}
		data = data[:min(len(data), Piece)]
		if !deaf {
			_, err := w.Write(data)
			deaf = err != nil
		}
		in.mu.Lock()
		in.data, in.start = in.data[len(data):], in.start+uint64(len(data))
		total := in.start
		in.mu.Unlock()
		select {
		case in.progress <- struct{}{}:
		default:
		}
		taken(total)
	}
}

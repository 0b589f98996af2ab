// Package trace writes timelines in the trace-event format that chrome://tracing and Perfetto show:
// a JSON array of events, one per line, without the closing bracket, as the format allows. So a
// file is valid after every write, even if its process dies, and the processes of a machine may
// append to the same one.
//
// The package knows events, clocks and files, but no messages. Unwritten events are in the Writer,
// whose size is bounded; so is that of the file.
package trace

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Phase is an event's kind, as its letter in the format.
type Phase string

// The phases used here.
const (
	Complete  Phase = "X" // a span, from At for For
	Instant   Phase = "i"
	FlowStart Phase = "s" // an arrow begins at the enclosing span
	FlowEnd   Phase = "f"
	Metadata  Phase = "M"
)

// An Event is one entry of a timeline.
type Event struct {
	Phase  Phase
	Name   string
	Kind   string // the format's category
	At     time.Duration
	For    time.Duration
	Thread int
	ID     string // of a flow
	Args   map[string]any
}

const (
	maxPending = 8192             // events that are held back until clocks are aligned
	writeAt    = 64 << 10         // buffered bytes at which the Writer writes without a Flush
	maxBytes   = int64(512 << 20) // of a file, for each process
)

// Writer writes the events of one process. It is safe for concurrent use.
type Writer struct {
	process int
	start   time.Time

	mu      sync.Mutex
	file    *os.File
	base    int64   // microseconds of start since 1970, by the shared clock
	held    []Event // until base is known
	holding bool
	buf     bytes.Buffer
	bytes   int64
	most    int64 // maximum size in bytes
	dropped uint64
	err     error // the first write error
}

// Open starts a timeline of a process with a number and a title: in the file rank-N.json of a
// folder, or appended to the named file.
func Open(name string, process int, title string) (*Writer, error) {
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		name = filepath.Join(name, fmt.Sprintf("rank-%d.json", process))
	}
	f, err := openArray(name)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	w := &Writer{process: process, start: now, base: now.UnixMicro(), file: f, holding: true, most: maxBytes}
	w.Add(Event{Phase: Metadata, Name: "process_name", Args: map[string]any{"name": title}})
	w.Add(Event{Phase: Metadata, Name: "process_sort_index", Args: map[string]any{"sort_index": process}})
	return w, nil
}

// openArray opens a file, which begins with a bracket, for appending. The first process creates it
// with the bracket in one step.
func openArray(name string) (*os.File, error) {
	draft, err := os.CreateTemp(filepath.Dir(name), ".trace-")
	if err != nil {
		return nil, err
	}
	defer os.Remove(draft.Name())
	_, err = draft.WriteString("[\n")
	if err := errors.Join(err, draft.Chmod(0o644), draft.Close()); err != nil {
		return nil, err
	}
	if err := os.Link(draft.Name(), name); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
}

// Now returns the time of an event that happens now.
func (w *Writer) Now() time.Duration { return time.Since(w.start) }

// Start returns when Now was 0, by the clock of this machine.
func (w *Writer) Start() time.Time { return w.start }

// Align says by how much the clock that all processes share is ahead of this machine's. Until then
// events are held back; if there are too many they are written without alignment.
func (w *Writer) Align(ahead time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.holding {
		w.base += ahead.Microseconds()
		w.release()
	}
}

// release writes the events held back. The caller must hold mu.
func (w *Writer) release() {
	w.holding = false
	for _, e := range w.held {
		w.encode(e)
	}
	w.held = nil
}

// Add adds an event.
func (w *Writer) Add(e Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.holding {
		if w.held = append(w.held, e); len(w.held) >= maxPending {
			w.release()
		}
		return
	}
	w.encode(e)
	if w.buf.Len() >= writeAt {
		w.write()
	}
}

// line is an event in the format; times are in microseconds.
type line struct {
	Phase  Phase          `json:"ph"`
	Name   string         `json:"name"`
	Kind   string         `json:"cat,omitempty"`
	Time   float64        `json:"ts"`
	Length *float64       `json:"dur,omitempty"`
	PID    int            `json:"pid"`
	TID    int            `json:"tid"`
	ID     string         `json:"id,omitempty"`
	Bind   string         `json:"bp,omitempty"` // "e": the arrow ends at the enclosing span
	Scope  string         `json:"s,omitempty"`  // "p": an instant of the process
	Args   map[string]any `json:"args,omitempty"`
}

// encode appends an event to the buffer. The caller must hold mu.
func (w *Writer) encode(e Event) {
	l := line{Phase: e.Phase, Name: e.Name, Kind: e.Kind, PID: w.process, TID: e.Thread, ID: e.ID, Args: e.Args}
	l.Time = float64(w.base) + float64(e.At.Nanoseconds())/1e3
	switch e.Phase {
	case Complete:
		length := float64(e.For.Nanoseconds()) / 1e3
		l.Length = &length
	case FlowEnd:
		l.Bind = "e"
	case Instant:
		l.Scope = "p"
	}
	b, err := json.Marshal(l)
	if err != nil {
		w.err = errors.Join(w.err, err)
		return
	}
	if w.bytes += int64(len(b)) + 2; w.bytes > w.most {
		w.dropped++
		return
	}
	w.buf.Write(b)
	w.buf.WriteString(",\n")
}

// write writes the buffer, in whole lines. The caller must hold mu.
func (w *Writer) write() {
	if w.buf.Len() == 0 {
		return
	}
	if _, err := w.file.Write(w.buf.Bytes()); err != nil && w.err == nil {
		w.err = err
	}
	w.buf.Reset()
}

// Flush writes all added events except those held back.
func (w *Writer) Flush() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.write()
}

// Close writes everything and closes the file. Its error is the first one that occurred, or says
// how many events were dropped.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.holding {
		w.release()
	}
	w.write()
	err := w.err
	if w.dropped > 0 {
		err = errors.Join(err, fmt.Errorf("%s would have more than %d bytes of this process: %d events are missing", w.file.Name(), w.most, w.dropped))
	}
	return errors.Join(err, w.file.Close())
}

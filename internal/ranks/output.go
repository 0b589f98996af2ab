package ranks

import (
	"bytes"
	"fmt"
	"io"
	"sync"
)

// outputs merges the output of all processes: a line at a time, so that no
// two lines mix, each behind its process's tag.
type outputs struct {
	job   Job
	mu    sync.Mutex // held while writing to the job's Stdout or Stderr
	lines []*lineWriter
}

func newOutputs(j Job) *outputs { return &outputs{job: j} }

// of returns the writers for a process's stdout and stderr.
func (o *outputs) of(rank int) (stdout, stderr io.Writer) {
	tag := ""
	if o.job.Label != "" {
		tag = fmt.Sprintf("[%s:%d] ", o.job.Label, rank)
	}
	add := func(to io.Writer) io.Writer {
		if to == nil {
			to = io.Discard
		}
		w := &lineWriter{to: to, tag: tag, shared: &o.mu}
		o.lines = append(o.lines, w)
		return w
	}
	return add(o.job.Stdout), add(o.job.Stderr)
}

// flush writes the lines that did not end; call it when all processes have.
func (o *outputs) flush() {
	for _, w := range o.lines {
		if len(w.rest) > 0 {
			w.Write([]byte("\n"))
		}
	}
}

// maxLine bounds what is held back of a line that does not end.
const maxLine = 64 << 10

// lineWriter passes whole lines on, tagged. One goroutine writes to it.
type lineWriter struct {
	to     io.Writer
	tag    string
	shared *sync.Mutex
	rest   []byte // an unfinished line
}

func (w *lineWriter) Write(p []byte) (int, error) {
	w.rest = append(w.rest, p...)
	end := bytes.LastIndexByte(w.rest, '\n') + 1
	if end == 0 {
		if len(w.rest) < maxLine {
			return len(p), nil
		}
		w.rest = append(w.rest, '\n')
		end = len(w.rest)
	}
	var out []byte
	for line := range bytes.Lines(w.rest[:end]) {
		out = append(append(out, w.tag...), line...)
	}
	w.rest = append(w.rest[:0], w.rest[end:]...)
	w.shared.Lock()
	defer w.shared.Unlock()
	if _, err := w.to.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}

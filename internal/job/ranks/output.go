package ranks

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Place identifies the process of a job that wrote some output.
type Place struct {
	Host string // the tag of output, such as "site/node"; empty: no tag
	Rank int
	Copy int // the copy of the rank, from 0

	// Merged means that the process is one of several replicas, on several hosts, that write the standard output of the rank
	// together. Its tag is the rank alone. Each replica has its own standard error, tagged [rank.copy].
	Merged bool
}

// Output handles the output of a job's processes. Lines, JSON and Folder return the implementations
// that users choose from. Of is called by one goroutine at a time; its writers may be used
// concurrently by one goroutine each.
type Output interface {
	// Of returns the writers for the standard output and standard error of a process. If a Write
	// fails because the output is no longer read, the process gets the error. Of replicas that write one
	// standard output the caller uses one writer for that, whichever.
	Of(p Place) (stdout, stderr io.Writer, err error)

	// Close writes buffered data, and closes what Of opened. No writer is used afterwards.
	Close() error
}

// NewOutput returns the Output of that form: "" for Lines, "json" for JSON, and otherwise the
// folder for Folder, which it creates if needed.
func NewOutput(form string, stdout, stderr io.Writer) (Output, error) {
	switch form {
	case "":
		return Lines(stdout, stderr), nil
	case "json":
		return JSON(stdout), nil
	}
	return Folder(form)
}

// Lines merges output line by line, so that lines do not mix, each after the tag [host:rank], or
// [rank] or [rank.copy] of replicas. A line of more than 64 KiB is split. A nil writer discards.
func Lines(stdout, stderr io.Writer) Output { return LiveLines(stdout, stderr, false, false) }

// LiveLines is Lines for an output that somebody watches: of a line of rank 0, which has the input, that
// does not go on for 50 ms, such as a prompt, what there is of it is passed on. If another process writes
// meanwhile, its output begins a line of its own, and so does the rest of the broken one.
func LiveLines(stdout, stderr io.Writer, isStdoutLive, isStderrLive bool) Output {
	m := &merged{live: map[string]bool{"stdout": isStdoutLive, "stderr": isStderrLive}}
	m.form = func(out []byte, p Place, stream string, line []byte) []byte {
		switch {
		case p.Merged && stream == "stderr":
			out = fmt.Appendf(out, "[%d.%d] ", p.Rank, p.Copy)
		case p.Merged:
			out = fmt.Appendf(out, "[%d] ", p.Rank)
		case p.Host != "":
			out = fmt.Appendf(out, "[%s:%d] ", p.Host, p.Rank)
		}
		return append(out, line...)
	}
	m.stdout, m.stderr = orDiscard(stdout), orDiscard(stderr)
	return m
}

// JSON writes one object for each line of each process, one object per line, all to out: rank, copy
// (if it is not the first, and not of what replicas write together), host (if known), stream ("stdout" or "stderr") and text, without a
// newline at its end. Bytes that are not valid UTF-8 become U+FFFD; a line of more than 64 KiB
// becomes several objects.
func JSON(out io.Writer) Output {
	m := &merged{}
	m.form = func(b []byte, p Place, stream string, line []byte) []byte {
		if p.Merged && stream == "stdout" {
			p.Copy = 0
		}
		object, _ := json.Marshal(struct { // strings and numbers do not fail
			Rank   int    `json:"rank"`
			Copy   int    `json:"copy,omitempty"`
			Host   string `json:"host,omitempty"`
			Stream string `json:"stream"`
			Text   string `json:"text"`
		}{p.Rank, p.Copy, p.Host, stream, string(bytes.TrimSuffix(line, []byte("\n")))})
		return append(append(b, object...), '\n')
	}
	m.stdout = orDiscard(out)
	m.stderr = m.stdout
	return m
}

func orDiscard(w io.Writer) io.Writer {
	if w == nil {
		return io.Discard
	}
	return w
}

// partialTime is how long a line may be unfinished before a live output gets what there is of it.
const partialTime = 50 * time.Millisecond

// merged is an Output of lines.
type merged struct {
	form           func(out []byte, p Place, stream string, line []byte) []byte // appends the line in its form to out
	stdout, stderr io.Writer
	live           map[string]bool // the streams that get unfinished lines

	mu    sync.Mutex // held while writing to stdout or stderr; guards what the writers hold
	lines []*lineWriter
	open  *lineWriter // the one whose unfinished line was passed on last, with nothing after it; nil: none
}

func (m *merged) Of(p Place) (stdout, stderr io.Writer, err error) {
	add := func(to io.Writer, stream string) io.Writer {
		w := &lineWriter{to: to, all: m, form: func(out, line []byte) []byte { return m.form(out, p, stream, line) }}
		if m.live[stream] && p.Rank == 0 {
			w.late = time.AfterFunc(partialTime, w.passPartial)
			w.late.Stop()
		}
		m.lines = append(m.lines, w)
		return w
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return add(m.stdout, "stdout"), add(m.stderr, "stderr"), nil
}

func (m *merged) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []error
	for _, w := range m.lines {
		if w.late != nil {
			w.late.Stop()
		}
		if len(w.unfinished) > 0 {
			w.unfinished = append(w.unfinished, '\n')
			all = append(all, w.pass(len(w.unfinished)))
		}
	}
	return errors.Join(append(all, m.finishOpen())...)
}

// finishOpen ends the line that is open on an output. mu is held.
func (m *merged) finishOpen() error {
	w := m.open
	if m.open = nil; w == nil {
		return nil
	}
	_, err := w.to.Write([]byte("\n"))
	return err
}

// maxLine bounds the buffered part of an unfinished line.
const maxLine = 64 << 10

// lineWriter passes on lines in their output form. One goroutine writes to it.
type lineWriter struct {
	to   io.Writer
	form func(out, line []byte) []byte
	all  *merged
	late *time.Timer // passes an unfinished line on; nil: only whole lines are

	// Guarded by all.mu.
	unfinished []byte // what was not passed on
	failed     error  // why an unfinished line could not be passed on
}

func (w *lineWriter) Write(p []byte) (int, error) {
	w.all.mu.Lock()
	defer w.all.mu.Unlock()
	if w.failed != nil {
		return 0, w.failed
	}
	w.unfinished = append(w.unfinished, p...)
	end := bytes.LastIndexByte(w.unfinished, '\n') + 1
	if end == 0 && len(w.unfinished) >= maxLine {
		w.unfinished = append(w.unfinished, '\n')
		end = len(w.unfinished)
	}
	if err := w.pass(end); err != nil {
		return 0, err
	}
	if w.late != nil && len(w.unfinished) > 0 {
		w.late.Reset(partialTime)
	}
	return len(p), nil
}

// passPartial passes on what there is of an unfinished line.
func (w *lineWriter) passPartial() {
	w.all.mu.Lock()
	defer w.all.mu.Unlock()
	if n := len(w.unfinished); n > 0 {
		w.failed = w.pass(n)
	}
}

// pass passes on the first n bytes. all.mu is held.
func (w *lineWriter) pass(n int) error {
	if n == 0 {
		return nil
	}
	var out []byte
	text := w.unfinished[:n]
	if w.all.open == w { // the output has the beginning of its line
		end := bytes.IndexByte(text, '\n') + 1
		if end == 0 {
			end = n
		}
		out, text = append(out, text[:end]...), text[end:]
	} else if err := w.all.finishOpen(); err != nil {
		return err
	}
	for line := range bytes.Lines(text) {
		out = w.form(out, line)
	}
	w.unfinished = append(w.unfinished[:0], w.unfinished[n:]...)
	w.all.open = nil
	if out[len(out)-1] != '\n' {
		w.all.open = w
	}
	_, err := w.to.Write(out)
	return err
}

// Folder writes the output of each process, unmodified, to separate files in a folder: rank.N.out
// and rank.N.err, or rank.N.C.out for a copy C that is not the first; what replicas write together to rank.N.out. Existing files are replaced.
func Folder(dir string) (Output, error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	return &folder{dir: dir, files: map[string]*os.File{}}, nil
}

type folder struct {
	dir   string
	files map[string]*os.File
}

func (f *folder) Of(p Place) (stdout, stderr io.Writer, err error) {
	rank := fmt.Sprintf("rank.%d", p.Rank)
	process := rank
	if p.Copy > 0 {
		process += fmt.Sprintf(".%d", p.Copy)
	}
	if !p.Merged {
		rank = process
	}
	out, err := f.file(rank + ".out")
	if err != nil {
		return nil, nil, err
	}
	diagnostics, err := f.file(process + ".err")
	return out, diagnostics, err
}

// file returns the file of that name: one for all processes that have it, of which one may come in the place of another.
func (f *folder) file(name string) (file *os.File, err error) {
	if f.files[name] == nil {
		if file, err = os.Create(filepath.Join(f.dir, name)); err != nil {
			return nil, err
		}
		f.files[name] = file
	}
	return f.files[name], nil
}

func (f *folder) Close() error {
	var all []error
	for _, file := range f.files {
		all = append(all, file.Close())
	}
	return errors.Join(all...)
}

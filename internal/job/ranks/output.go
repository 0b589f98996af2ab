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
func Lines(stdout, stderr io.Writer) Output {
	m := &merged{}
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

// merged is an Output of whole lines.
type merged struct {
	form           func(out []byte, p Place, stream string, line []byte) []byte // appends the line in its form to out
	stdout, stderr io.Writer

	mu    sync.Mutex // held while writing to stdout or stderr
	lines []*lineWriter
}

func (m *merged) Of(p Place) (stdout, stderr io.Writer, err error) {
	add := func(to io.Writer, stream string) io.Writer {
		w := &lineWriter{to: to, shared: &m.mu, form: func(out, line []byte) []byte { return m.form(out, p, stream, line) }}
		m.lines = append(m.lines, w)
		return w
	}
	return add(m.stdout, "stdout"), add(m.stderr, "stderr"), nil
}

func (m *merged) Close() error {
	var all []error
	for _, w := range m.lines {
		if len(w.unfinished) > 0 {
			_, err := w.Write([]byte("\n"))
			all = append(all, err)
		}
	}
	return errors.Join(all...)
}

// maxLine bounds the buffered part of an unfinished line.
const maxLine = 64 << 10

// lineWriter passes on whole lines in their output form. One goroutine writes to it.
type lineWriter struct {
	to         io.Writer
	form       func(out, line []byte) []byte
	shared     *sync.Mutex
	unfinished []byte // an unfinished line
}

func (w *lineWriter) Write(p []byte) (int, error) {
	w.unfinished = append(w.unfinished, p...)
	end := bytes.LastIndexByte(w.unfinished, '\n') + 1
	if end == 0 {
		if len(w.unfinished) < maxLine {
			return len(p), nil
		}
		w.unfinished = append(w.unfinished, '\n')
		end = len(w.unfinished)
	}
	var out []byte
	for line := range bytes.Lines(w.unfinished[:end]) {
		out = w.form(out, line)
	}
	w.unfinished = append(w.unfinished[:0], w.unfinished[end:]...)
	w.shared.Lock()
	defer w.shared.Unlock()
	if _, err := w.to.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
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

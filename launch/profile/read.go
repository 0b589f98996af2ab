package profile

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
)

// ReadFile reads a profile. See Read.
func ReadFile(name string) (*Profile, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("job profile: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, MaxFile+1))
	if err != nil {
		return nil, fmt.Errorf("job profile: %w", err)
	}
	return Read(name, text)
}

// Read parses the text of a profile: XML if it begins with '<', else YAML. The name is for
// messages. An error is Faults; the profile returned with it has what could be read, for display
// only.
func Read(name string, text []byte) (*Profile, error) {
	r := reader{file: name, at: map[string]position{}, named: map[string]string{}}
	p := &Profile{}
	switch {
	case len(text) > MaxFile:
		r.addError(position{}, "", "more than %d bytes; a profile lists groups, not processes", MaxFile)
	case bytes.HasPrefix(bytes.TrimSpace(bytes.TrimPrefix(text, []byte("\ufeff"))), []byte("<")):
		r.xml(p, text)
	default:
		r.yaml(p, text)
	}
	return p, r.err()
}

// maxFaults bounds the faults that are reported; a text with more is probably no profile.
const maxFaults = 100

type position struct{ line, column int }

// A reader records the positions of keys and all faults.
type reader struct {
	file   string
	at     map[string]position // key -> its position
	named  map[string]string   // key of a Profile -> that of the text, where earlier entries were left out
	faults Faults
}

func (r *reader) addError(at position, key, format string, args ...any) {
	f := Fault{File: r.file, Line: at.line, Column: at.column, Key: key, Err: fmt.Errorf(format, args...)}
	// One fault for each key is enough, and the first is nearest to the cause.
	if len(r.faults) < maxFaults && !slices.ContainsFunc(r.faults, func(g Fault) bool { return g.Key == key && key != "" }) {
		r.faults = append(r.faults, f)
	}
}

// wrongAt is wrong at the position of the key, or else of the nearest key above it.
func (r *reader) wrongAt(key, format string, args ...any) {
	if entry, rest, ok := strings.Cut(key, "]"); ok && r.named[entry+"]"] != "" {
		key = r.named[entry+"]"] + rest
	}
	for k := key; k != ""; k = k[:max(0, strings.LastIndexAny(k, ".["))] {
		if at, ok := r.at[k]; ok {
			r.addError(at, key, format, args...)
			return
		}
	}
	r.addError(position{}, key, format, args...)
}

func (r *reader) err() error {
	if len(r.faults) == 0 {
		return nil
	}
	slices.SortStableFunc(r.faults, func(a, b Fault) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return r.faults
}

// integer parses an integer of 1 or more.
func (r *reader) integer(at position, key, text string) int {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || strings.HasPrefix(text, "+") {
		r.addError(at, key, "%q; want a whole number of 1 or more", text)
		return 1
	}
	return n
}

// read stores in to what parse makes of text.
func read[T any](r *reader, at position, key, text string, parse func(string) (T, error), to *T) {
	v, err := parse(text)
	if err != nil {
		r.addError(at, key, "%w", err)
		return
	}
	*to = v
}

// group returns the index of the named group.
func (r *reader) group(p *Profile, at position, key, name string) (int, bool) {
	i := slices.IndexFunc(p.Groups, func(g Group) bool { return g.Name == name })
	if i < 0 {
		known := make([]string, len(p.Groups))
		for i := range p.Groups {
			known[i] = p.Groups[i].Name
		}
		r.addError(at, key, "no group has the name %q; the groups are %s", name, strings.Join(known, ", "))
	}
	return i, i >= 0
}

// someSites returns the default of Group.Sites.
func someSites(inside Network) int {
	if inside.Limited() {
		return 0
	}
	return 1
}

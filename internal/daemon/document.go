package daemon

import (
	"errors"
	"io/fs"
	"path/filepath"
	"reflect"
	"slices"
)

// Document reads the text of a file that is no daemon's settings and is
// described as they are, by a struct with the tags of the package comment. It
// is strict: an unknown key is a fault. The error, a [Faults], lists every
// fault with file, line and column; file is the name to call the text by.
//
// Origin says where a key's value stands, as "policy.yaml:3:9", for what the
// caller itself finds wrong with it.
func Document[D any](file string, text []byte) (doc D, origin func(key string) string, err error) {
	v := reflect.ValueOf(&doc).Elem()
	origin, faults := examine(mustSchema(v.Type()), v, sources{file: file, text: text})
	if len(faults) > 0 {
		return doc, origin, faults
	}
	return doc, origin, nil
}

// Adviser is implemented by settings that deny something until they say otherwise.
type Adviser interface {
	// Advice says what is denied, by key, and what to write in order to permit it. It is
	// asked of settings without faults.
	Advice() Faults
}

// Examine looks at the text of a daemon's settings as --check does, on
// whatever machine: files that the settings name and that are not there, or
// not for this user to read, are in absent, what else is wrong in faults. Settings
// without faults that are an Adviser give their advice.
func Examine[C any](file string, text []byte) (faults, absent, advice Faults) {
	var all whole[C]
	v := reflect.ValueOf(&all).Elem()
	_, found := examine(mustSchema(v.Type()), v, sources{file: file, text: text, exists: true})
	for _, f := range found {
		if f.absent() {
			absent = append(absent, f)
		} else {
			faults = append(faults, f)
		}
	}
	if a, ok := any(all.Own).(Adviser); ok && len(faults) == 0 {
		advice = a.Advice()
	}
	return faults, absent, advice
}

// Keys returns the keys that a daemon's settings have at the top of the file,
// in order: by them a file can be told from another's.
func Keys[C any]() []string {
	var names []string
	for _, c := range mustSchema(reflect.TypeFor[whole[C]]()).children {
		names = append(names, c.name)
	}
	return names
}

// examine is load for a file alone, with the way back from keys to lines.
func examine(root *field, v reflect.Value, src sources) (origin func(string) string, faults Faults) {
	root.setDefaults(v)
	d := &decoder{origins: map[string]string{}, file: src.file, dir: filepath.Dir(src.file)}
	d.document(root, v, src.text)
	c := checker{src: src, dec: d}
	c.values(root, v, "")
	// Check may rely on every key having a value; the name of a file that is
	// not there is one.
	if !slices.ContainsFunc(d.faults, func(f Fault) bool { return !f.absent() }) {
		c.methods(root, v, "")
	}
	return c.origin, d.faults
}

// absent reports whether the fault is only that a named file cannot be read here.
func (f Fault) absent() bool {
	return f.missing && (errors.Is(f.Err, fs.ErrNotExist) || errors.Is(f.Err, fs.ErrPermission))
}

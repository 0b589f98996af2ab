package daemon

import (
	"errors"
	"io/fs"
	"path/filepath"
	"reflect"
	"slices"
)

// Document decodes the text of a file that is not a daemon's settings but is described like them,
// by a struct with the tags of the package comment. It is strict: an unknown key is a fault. The
// error, a [Faults], lists every fault with file, line and column; file is the name to call the
// text by.
//
// Origin returns the position of a key's value, as "policy.yaml:3:9", for faults that the caller
// finds itself.
func Document[D any](file string, text []byte) (doc D, origin func(key string) string, err error) {
	v := reflect.ValueOf(&doc).Elem()
	origin, faults := examine(mustSchema(v.Type()), v, sources{file: file, text: text})
	if len(faults) > 0 {
		return doc, origin, faults
	}
	return doc, origin, nil
}

// Adviser is implemented by settings that deny something by default.
type Adviser interface {
	// Advice returns what is denied, by key, and what to write in order to permit it. It is called
	// for settings without faults.
	Advice() Faults
}

// Examine checks the text of a daemon's settings as --check does, on any machine: it returns files
// that the settings name and that do not exist here, or that this user may not read, in absent, and
// other faults, also of files that can be read here, in faults. For settings without faults that implement Adviser, it returns their
// advice.
func Examine[C any](file string, text []byte) (faults, absent, advice Faults) {
	var all whole[C]
	v := reflect.ValueOf(&all).Elem()
	_, found := examine(mustSchema(v.Type()), v, sources{file: file, text: text, exists: true, files: true})
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

// Keys returns the keys at the top level of a daemon's settings, in order: they identify the kind
// of a file.
func Keys[C any]() []string {
	var names []string
	for _, c := range mustSchema(reflect.TypeFor[whole[C]]()).children {
		names = append(names, c.name)
	}
	return names
}

// examine is load for a file alone, and also returns the positions of keys.
func examine(root *field, v reflect.Value, src sources) (origin func(string) string, faults Faults) {
	root.setDefaults(v)
	d := &decoder{origins: map[string]string{}, file: src.file, dir: filepath.Dir(src.file)}
	d.document(root, v, src.text)
	c := checker{src: src, dec: d}
	c.values(root, v, "")
	// Check may rely on every key having a value; the name of a missing file is a value.
	isFaulty := func() bool { return slices.ContainsFunc(d.faults, func(f Fault) bool { return !f.absent() }) }
	if !isFaulty() {
		c.methods(root, v, "", check)
	}
	if !isFaulty() && src.files {
		c.methods(root, v, "", checkFiles)
	}
	return c.origin, d.faults
}

// absent reports whether the fault is only that a named file cannot be read here.
func (f Fault) absent() bool {
	return f.missing && (errors.Is(f.Err, fs.ErrNotExist) || errors.Is(f.Err, fs.ErrPermission))
}

package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// maxFile bounds a settings file: far above the size of any real one, far below a harmful one.
const maxFile = 4 << 20

// sources are the origins of values, besides the defaults.
type sources struct {
	file   string                      // name of the text; "": no file
	text   []byte                      // content of the file
	env    func(string) (string, bool) // as os.LookupEnv; nil: no environment
	prefix string                      // of the environment variables
	flags  map[string][]string         // key -> its values on the command line
	exists bool                        // whether files with a path tag must exist
	files  bool                        // whether to look at what is in them
}

// load fills v, the struct that root describes, from all sources, the weakest first, and returns
// the faults.
func load(root *field, v reflect.Value, src sources) Faults {
	root.setDefaults(v)
	d := &decoder{origins: map[string]string{}}
	if src.file != "" {
		d.file, d.dir = src.file, filepath.Dir(src.file)
		d.document(root, v, src.text)
		d.file, d.dir = "", ""
	}
	root.leaves(v, func(f *field, v reflect.Value) {
		name := envName(src.prefix, f.key)
		if src.env != nil {
			// An empty variable counts as unset: many launchers cannot unset.
			if text, _ := src.env(name); text != "" {
				d.text(f, v, f.key, "environment "+name, text)
			}
		}
		if texts := src.flags[f.key]; len(texts) > 0 {
			d.text(f, v, f.key, "flag --"+flagName(f.key), texts...)
		}
	})
	c := checker{src: src, dec: d}
	c.values(root, v, "")
	if len(d.faults) == 0 { // Check may rely on every key having a valid value
		c.methods(root, v, "", check)
	}
	if len(d.faults) == 0 && src.files {
		c.methods(root, v, "", checkFiles)
	}
	return d.faults
}

// check and checkFiles call the methods of a struct of settings that has them.
func check(part any) error {
	if checked, ok := part.(interface{ Check() error }); ok {
		return checked.Check()
	}
	return nil
}

func checkFiles(part any) error {
	if checked, ok := part.(interface{ CheckFiles() error }); ok {
		return checked.CheckFiles()
	}
	return nil
}

// document decodes a whole file.
func (d *decoder) document(root *field, v reflect.Value, text []byte) {
	dec := yaml.NewDecoder(bytes.NewReader(text))
	var doc, next yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return // empty, or only comments: the defaults
	case err != nil:
		d.addError(d.file, "", "%s", strings.TrimPrefix(err.Error(), "yaml: "))
		return
	}
	if err := dec.Decode(&next); !errors.Is(err, io.EOF) {
		d.addError(d.file, "", "more than one document; remove what follows the second ---")
	}
	d.node(root, v, "", d.file, doc.Content[0])
}

// readFile reads a settings file; without a name it returns no text.
func readFile(name string) ([]byte, error) {
	if name == "" {
		return nil, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("settings file: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("settings file: %w", err)
	}
	if len(text) > maxFile {
		return nil, fmt.Errorf("settings file %s: more than %s", name, Size(maxFile))
	}
	return text, nil
}

// A checker validates settings that have been decoded.
type checker struct {
	src sources
	dec *decoder
}

// origin returns the position of a key's value, or that of the nearest key above that has one, or
// the file as a whole.
func (c *checker) origin(key string) string {
	for k := key; k != ""; k = k[:max(0, strings.LastIndexAny(k, ".["))] {
		if at, ok := c.dec.origins[k]; ok {
			return at
		}
	}
	return sourceName(c.src.file)
}

// faulty reports whether key has a fault already: one per key is enough.
func (c *checker) faulty(key string) bool {
	return slices.ContainsFunc(c.dec.faults, func(f Fault) bool { return f.Key == key })
}

// values checks the tags that apply to values rather than to their text.
func (c *checker) values(f *field, v reflect.Value, key string) {
	if f.required && v.IsZero() && !c.faulty(key) {
		c.dec.faults = append(c.dec.faults, Fault{
			Origin: c.origin(key), Key: key, missing: true,
			Err: fmt.Errorf("needs a value%s", c.howToSet(f, key)),
		})
	}
	if text, ok := reflect.TypeAssert[Path](v); ok && c.src.exists && f.exists != "" && text != "" && !c.faulty(key) {
		if err := mustExist(string(text), f.exists); err != nil {
			c.dec.faults = append(c.dec.faults, Fault{Origin: c.origin(key), Key: key, missing: true, Err: err})
		}
	}
	f.walk(v, key, c.values)
}

// methods runs check for every struct, inner ones first.
func (c *checker) methods(f *field, v reflect.Value, key string, check func(part any) error) {
	f.walk(v, key, func(f *field, v reflect.Value, key string) { c.methods(f, v, key, check) })
	if f.kind != section {
		return
	}
	for _, part := range inlined(v) {
		c.dec.faults = append(c.dec.faults, checkFaults(key, check(part.Addr().Interface()), c.origin)...)
	}
}

// inlined returns the struct v and those whose keys are lifted into it. The promoted method of an
// embedded struct would run twice: only the embedding one runs it.
func inlined(v reflect.Value) []reflect.Value {
	all := []reflect.Value{v}
	for i := range v.NumField() {
		sf := v.Type().Field(i)
		if !sf.Anonymous && strings.HasSuffix(sf.Tag.Get("yaml"), ",inline") {
			all = append(all, inlined(v.Field(i))...)
		}
	}
	return all
}

// walk calls visit for every child or element of v.
func (f *field) walk(v reflect.Value, key string, visit func(*field, reflect.Value, string)) {
	switch f.kind {
	case section:
		for _, child := range f.children {
			visit(child, v.FieldByIndex(child.index), join(key, child.name))
		}
	case list:
		for i := range v.Len() {
			visit(f.elem, v.Index(i), fmt.Sprintf("%s[%d]", key, i))
		}
	case table:
		for _, k := range sortedKeys(v) {
			// An element of a map is not addressable; Check may have a pointer receiver.
			elem := reflect.New(f.elem.typ).Elem()
			elem.Set(v.MapIndex(k))
			visit(f.elem, elem, join(key, k.String()))
		}
	}
}

func sortedKeys(m reflect.Value) []reflect.Value {
	return slices.SortedFunc(slices.Values(m.MapKeys()), func(a, b reflect.Value) int {
		return strings.Compare(a.String(), b.String())
	})
}

func (c *checker) howToSet(f *field, key string) string {
	if f.key != key || c.src.prefix == "" { // inside a list, or no command line
		return ""
	}
	return fmt.Sprintf(", in the file, as --%s or in %s", flagName(key), envName(c.src.prefix, key))
}

// mustExist reports a path that does not exist, is of another kind, or cannot be read.
func mustExist(name, kind string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return err
	case kind == "dir" && !info.IsDir():
		return fmt.Errorf("%s is not a folder", name)
	case kind == "file" && info.IsDir():
		return fmt.Errorf("%s is a folder, not a file", name)
	}
	return nil
}

// sourceName returns the name of the settings as a whole.
func sourceName(file string) string {
	if file == "" {
		return "settings without a file"
	}
	return file
}

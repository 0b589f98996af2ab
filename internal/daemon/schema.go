package daemon

import (
	"encoding"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// A kind is the YAML form of a key's value.
type kind int

const (
	scalar  kind = iota // one word
	section             // a struct: fixed keys
	list                // a slice: any number of elements
	table               // a map from names that the admin chooses
)

// A field describes one key, or the element of a list or table.
type field struct {
	key      string // full, as in "tls.cert"; relative to the element inside a list or table
	name     string // last part, as in "cert"
	index    []int  // from the enclosing section's struct
	kind     kind
	typ      reflect.Type
	help     string
	preset   string // the default tag
	example  string
	enum     []string
	min, max string
	required bool
	exists   string   // the path tag: "", "file" or "dir"
	children []*field // of a section
	elem     *field   // of a list or table
}

var textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()

// mustSchema describes the struct type t, and panics if t is unsuitable.
func mustSchema(t reflect.Type) *field {
	root := &field{kind: section, typ: t}
	if err := root.describe(nil); err != nil {
		panic("daemon: settings " + t.String() + ": " + err.Error())
	}
	root.setDefaults(reflect.New(t).Elem())
	return root
}

// describe determines the kind of f.typ and describes what is below it. seen has the types above: a
// recursive type would have endless flags.
func (f *field) describe(seen []reflect.Type) error {
	if slices.Contains(seen, f.typ) {
		return fmt.Errorf("%s: type %s contains itself", f.key, f.typ)
	}
	seen = append(slices.Clip(seen), f.typ)
	if reflect.PointerTo(f.typ).Implements(textUnmarshaler) {
		return nil
	}
	switch f.typ.Kind() {
	case reflect.Struct:
		f.kind = section
		if err := f.describeChildren(f.typ, nil, seen); err != nil {
			return err
		}
		return f.distinct()
	case reflect.Slice:
		f.kind = list
	case reflect.Map:
		f.kind = table
		if f.typ.Key().Kind() != reflect.String {
			return fmt.Errorf("%s: a map's keys must be strings", f.key)
		}
	case reflect.String, reflect.Bool, reflect.Float32, reflect.Float64,
		reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return nil
	default:
		return fmt.Errorf("%s: type %s is not supported", f.key, f.typ)
	}
	f.elem = &field{typ: f.typ.Elem(), enum: f.enum, min: f.min, max: f.max, exists: f.exists}
	return f.elem.describe(seen)
}

// describeChildren adds a child for every key of the struct t, which is at index within f's own
// struct.
func (f *field) describeChildren(t reflect.Type, index []int, seen []reflect.Type) error {
	for i := range t.NumField() {
		sf := t.Field(i)
		at := append(slices.Clone(index), i)
		name, option, _ := strings.Cut(sf.Tag.Get("yaml"), ",")
		switch {
		case name == "-":
			continue
		case option == "inline" && sf.Type.Kind() == reflect.Struct:
			if err := f.describeChildren(sf.Type, at, seen); err != nil {
				return err
			}
			continue
		case !sf.IsExported() || name == "" || option != "":
			return fmt.Errorf("field %s.%s needs a name in its yaml tag, and to be exported", t, sf.Name)
		}
		child, err := newField(f.key, name, at, sf)
		if err != nil {
			return err
		}
		if err := child.describe(seen); err != nil {
			return err
		}
		f.children = append(f.children, child)
	}
	return nil
}

// newField parses the tags of one struct field.
func newField(above, name string, index []int, sf reflect.StructField) (*field, error) {
	f := &field{
		key: join(above, name), name: name, index: index, typ: sf.Type,
		help: sf.Tag.Get("help"), preset: sf.Tag.Get("default"), example: sf.Tag.Get("example"),
		min: sf.Tag.Get("min"), max: sf.Tag.Get("max"),
		required: sf.Tag.Get("required") == "true", exists: sf.Tag.Get("path"),
	}
	if words := sf.Tag.Get("enum"); words != "" {
		f.enum = strings.Split(words, ",")
	}
	switch {
	case f.help == "":
		return nil, fmt.Errorf("%s: no help tag", f.key)
	case strings.ContainsAny(name, ". "):
		return nil, fmt.Errorf("%s: a key is made of letters, digits, dashes and underscores", f.key)
	case !slices.Contains([]string{"", "file", "dir"}, f.exists):
		return nil, fmt.Errorf("%s: path:%q is neither file nor dir", f.key, f.exists)
	}
	return f, nil
}

// distinct reports two children of one name, which inlining makes possible.
func (f *field) distinct() error {
	seen := map[string]bool{}
	for _, c := range f.children {
		if seen[c.name] {
			return fmt.Errorf("%s: two fields have this key", c.key)
		}
		seen[c.name] = true
	}
	return nil
}

// child returns the key called name, or nil.
func (f *field) child(name string) *field {
	for _, c := range f.children {
		if c.name == name {
			return c
		}
	}
	return nil
}

// leaves calls visit for every key that a flag can set, with its value inside v, in the order of
// the struct.
func (f *field) leaves(v reflect.Value, visit func(*field, reflect.Value)) {
	for _, c := range f.children {
		if c.kind == section {
			c.leaves(v.FieldByIndex(c.index), visit)
		} else {
			visit(c, v.FieldByIndex(c.index))
		}
	}
}

// setDefaults sets every zero value below v to its default. It panics on a default that is not a
// value of its key: that is an error in the program, not its user's.
func (f *field) setDefaults(v reflect.Value) {
	f.leaves(v, func(c *field, v reflect.Value) {
		if c.preset == "" || !v.IsZero() {
			return
		}
		v.Set(c.mustParse("default", c.preset))
	})
}

func join(above, name string) string {
	if above == "" {
		return name
	}
	return above + "." + name
}

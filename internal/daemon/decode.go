package daemon

import (
	"fmt"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// A decoder decodes one source's values into a settings struct, recording the origin of each and
// all faults. Unlike yaml.v3's own, it names the key and the column, suggests the nearest known
// key, and continues after a fault so that one run shows them all.
type decoder struct {
	file    string            // name of the text, followed by line and column; "": not a file
	dir     string            // relative paths are relative to it; "": the working directory
	origins map[string]string // key -> origin of its value; nil if not needed
	faults  Faults
}

// position returns where a node is: "broker.yaml:3:9", or the origin passed to d.text.
func (d *decoder) position(n *yaml.Node, origin string) string {
	if d.file == "" {
		return origin
	}
	return fmt.Sprintf("%s:%d:%d", d.file, n.Line, n.Column)
}

func (d *decoder) addError(origin, key, format string, args ...any) {
	d.faults = append(d.faults, Fault{Origin: origin, Key: key, Err: fmt.Errorf(format, args...)})
}

func (d *decoder) note(key, origin string) {
	if d.origins != nil {
		d.origins[key] = origin
	}
}

// node sets v, which f describes and whose full key is key, from n. Aliases cannot make that
// endless: the settings' types bound the depth.
func (d *decoder) node(f *field, v reflect.Value, key, origin string, n *yaml.Node) {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	origin = d.position(n, origin)
	d.note(key, origin)
	if n.Tag == "!!null" && f.kind != section {
		d.addError(origin, key, "no value; remove the key to have its default")
		return
	}
	switch f.kind {
	case section:
		d.section(f, v, key, origin, n)
	case list:
		d.list(f, v, key, origin, n)
	case table:
		d.table(f, v, key, origin, n)
	case scalar:
		d.scalar(f, v, key, origin, n)
	}
}

func (d *decoder) section(f *field, v reflect.Value, key, origin string, n *yaml.Node) {
	if n.Tag == "!!null" {
		return // a heading whose keys are all commented out
	}
	d.pairs(key, origin, n, func(name string, k, val *yaml.Node) {
		c := f.child(name)
		if c == nil {
			d.addError(d.position(k, origin), join(key, name), "unknown key%s", f.nearest(name))
			return
		}
		d.node(c, v.FieldByIndex(c.index), join(key, name), origin, val)
	})
}

// pairs calls each for every pair of a mapping, and reports a node that is not a mapping.
func (d *decoder) pairs(key, origin string, n *yaml.Node, each func(name string, k, v *yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		d.addError(origin, key, "%s where keys belong", describeNode(n))
		return
	}
	first := map[string]*yaml.Node{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		if k.Kind != yaml.ScalarNode || k.Tag == "!!merge" {
			d.addError(d.position(k, origin), key, "a key must be one word (merging with << is not supported)")
			continue
		}
		if before := first[k.Value]; before != nil {
			d.addError(d.position(k, origin), join(key, k.Value), "given twice; the first is at line %d", before.Line)
			continue
		}
		first[k.Value] = k
		each(k.Value, k, v)
	}
}

func (d *decoder) list(f *field, v reflect.Value, key, origin string, n *yaml.Node) {
	if n.Kind == yaml.ScalarNode && f.elem.kind == scalar { // one word is a list of one
		n = &yaml.Node{Kind: yaml.SequenceNode, Content: []*yaml.Node{n}}
	}
	if n.Kind != yaml.SequenceNode {
		d.addError(origin, key, "%s where a list belongs; write [a, b] or one \"- a\" per line", describeNode(n))
		return
	}
	elems := reflect.MakeSlice(f.typ, len(n.Content), len(n.Content))
	for i, e := range n.Content {
		d.elem(f.elem, elems.Index(i), key+"["+strconv.Itoa(i)+"]", origin, e)
	}
	v.Set(elems)
}

func (d *decoder) table(f *field, v reflect.Value, key, origin string, n *yaml.Node) {
	entries := reflect.MakeMap(f.typ)
	d.pairs(key, origin, n, func(name string, _, val *yaml.Node) {
		elem := reflect.New(f.typ.Elem()).Elem()
		d.elem(f.elem, elem, join(key, name), origin, val)
		entries.SetMapIndex(reflect.ValueOf(name).Convert(f.typ.Key()), elem)
	})
	v.Set(entries)
}

func (d *decoder) elem(f *field, v reflect.Value, key, origin string, n *yaml.Node) {
	if f.kind == section {
		f.setDefaults(v)
	}
	d.node(f, v, key, origin, n)
}

func (d *decoder) scalar(f *field, v reflect.Value, key, origin string, n *yaml.Node) {
	if n.Kind != yaml.ScalarNode {
		d.addError(origin, key, "%s where one value belongs", describeNode(n))
		return
	}
	if want := mismatch(v, n); want != "" {
		d.addError(origin, key, "%s where %s belongs", describeNode(n), want)
		return
	}
	d.decodeScalar(f, v, key, origin, n.Value)
}

// decodeScalar sets a scalar from its text.
func (d *decoder) decodeScalar(f *field, v reflect.Value, key, origin, text string) {
	d.note(key, origin)
	if err := parseScalar(f, v, text); err != nil {
		d.addError(origin, key, "%w", err)
		return
	}
	if v.Type() == pathType && d.dir != "" && text != "" && !filepath.IsAbs(text) && !strings.Contains(text, "://") {
		v.SetString(filepath.Join(d.dir, text))
	}
}

// text sets v from the text on the command line, in the environment or in a tag: words unchanged,
// lists of words separated by commas, all else as YAML.
func (d *decoder) text(f *field, v reflect.Value, key, origin string, texts ...string) {
	d.note(key, origin)
	last := texts[len(texts)-1]
	switch {
	case f.kind == scalar:
		d.decodeScalar(f, v, key, origin, last)
	case f.kind == list && f.elem.kind == scalar:
		var words []string
		for _, t := range texts {
			for w := range strings.SplitSeq(t, ",") {
				if w = strings.TrimSpace(w); w != "" {
					words = append(words, w)
				}
			}
		}
		elems := reflect.MakeSlice(f.typ, len(words), len(words))
		for i, w := range words {
			d.decodeScalar(f.elem, elems.Index(i), key+"["+strconv.Itoa(i)+"]", origin, w)
		}
		v.Set(elems)
	default:
		var doc yaml.Node
		if err := yaml.Unmarshal([]byte(last), &doc); err != nil {
			d.addError(origin, key, "not YAML: %s", strings.TrimPrefix(err.Error(), "yaml: "))
		} else if len(doc.Content) == 1 {
			d.node(f, v, key, origin, doc.Content[0])
		} else {
			d.addError(origin, key, "no value")
		}
	}
}

// mismatch describes what v requires when the YAML scalar n is of another type. YAML reads 010 as
// an integer and yes as a string: the fault says which type is required.
func mismatch(v reflect.Value, n *yaml.Node) string {
	if _, ok := v.Addr().Interface().(interface{ UnmarshalText([]byte) error }); ok || v.Type() == durationType {
		return ""
	}
	switch v.Kind() {
	case reflect.String:
		if n.Tag != "!!str" && n.Tag != "!!timestamp" {
			return "text (put it in quotes)"
		}
	case reflect.Bool:
		if n.Tag != "!!bool" {
			return "true or false"
		}
	case reflect.Float32, reflect.Float64:
		if n.Tag != "!!int" && n.Tag != "!!float" {
			return "a number"
		}
	default:
		if n.Tag != "!!int" {
			return "a whole number"
		}
	}
	return ""
}

// describeNode describes a node for people.
func describeNode(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "keys"
	case yaml.SequenceNode:
		return "a list"
	}
	switch n.Tag {
	case "!!int", "!!float":
		return "the number " + n.Value
	case "!!bool":
		return "the truth value " + n.Value
	case "!!null":
		return "nothing"
	case "!!str", "!!timestamp":
		return fmt.Sprintf("the text %q", n.Value)
	}
	return fmt.Sprintf("a %s", n.Tag)
}

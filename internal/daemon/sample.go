package daemon

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"

	"gopkg.in/yaml.v3"
)

// render writes the settings v as a commented file. A key at its default is commented out with "#"
// directly before it, so that a later default applies to files that did not set it; a key with
// another value, and a required one, are active.
func render(name string, root *field, v reflect.Value) []byte {
	defaults := reflect.New(root.typ).Elem()
	root.setDefaults(defaults)
	w := &sampleWriter{prefix: envPrefix(name), folder: "/var/lib/isthmus/" + strings.TrimPrefix(name, "isthmus-")}
	w.comment("", fmt.Sprintf("Settings of %s. A key behind a # has the default shown; remove the mark to change it. Every key is also a flag (tls.cert is --tls-cert) and an environment variable (%s). A flag wins over the environment, the environment over this file. \"%s --check --config FILE\" finds mistakes.",
		name, envName(w.prefix, "tls.cert"), name))
	w.section(root, v, defaults, "")
	return w.Bytes()
}

type sampleWriter struct {
	bytes.Buffer
	prefix string
	folder string // the daemon's state folder, as in its unit; $STATE in examples
}

const sampleWidth = 100

// comment writes text after "# ", wrapped at words.
func (w *sampleWriter) comment(indent, text string) {
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len(indent)+2+len(line)+1+len(word) > sampleWidth {
			fmt.Fprintf(w, "%s# %s\n", indent, line)
			line = ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	fmt.Fprintf(w, "%s# %s\n", indent, line)
}

func (w *sampleWriter) section(f *field, v, defaults reflect.Value, indent string) {
	for i, c := range f.children {
		value, preset := v.FieldByIndex(c.index), defaults.FieldByIndex(c.index)
		if i > 0 || indent == "" {
			w.WriteString("\n")
		}
		w.comment(indent, c.help+c.tagComment())
		w.elements(c, indent)
		if c.kind == section {
			fmt.Fprintf(w, "%s%s:\n", indent, c.name)
			w.section(c, value, preset, indent+"  ")
			continue
		}
		w.key(c, value, preset, indent)
	}
}

// mustParse parses the text of a tag. An invalid one is an error in the program.
func (f *field) mustParse(tag, text string) reflect.Value {
	v := reflect.New(f.typ).Elem()
	d := decoder{}
	if d.text(f, v, f.key, tag, text); len(d.faults) > 0 {
		panic("daemon: " + d.faults.Error())
	}
	return v
}

// tagComment returns the part of a key's comment that comes from the other tags.
func (f *field) tagComment() string {
	text := ""
	if len(f.enum) > 0 {
		text += " One of: " + strings.Join(f.enum, ", ") + "."
	}
	switch {
	case f.min != "" && f.max != "":
		text += fmt.Sprintf(" From %s to %s.", f.min, f.max)
	case f.min != "":
		text += fmt.Sprintf(" At least %s.", f.min)
	case f.max != "":
		text += fmt.Sprintf(" At most %s.", f.max)
	}
	if f.required {
		text += " Required."
	}
	return text
}

// elements lists the keys of a list's or table's elements, which have no lines of their own.
func (w *sampleWriter) elements(f *field, indent string) {
	if f.elem == nil || f.elem.kind != section {
		return
	}
	w.comment(indent, "Each has:")
	f.elem.leaves(reflect.New(f.elem.typ).Elem(), func(c *field, _ reflect.Value) {
		text := "- " + c.key + ": " + c.help + c.tagComment()
		if c.preset != "" {
			text += " Default: " + c.preset + "."
		}
		w.comment(indent, text)
	})
}

func (w *sampleWriter) key(f *field, v, preset reflect.Value, indent string) {
	mark := "#"
	text := f.yamlValue(v)
	chosen := !reflect.DeepEqual(v.Interface(), preset.Interface())
	if chosen || f.required {
		mark = ""
	}
	if !chosen && v.IsZero() && f.example != "" {
		text = f.yamlValue(f.mustParse("example", strings.ReplaceAll(f.example, "$STATE", w.folder)))
	}
	fmt.Fprintf(w, "%s%s%s: %s\n", indent, mark, f.name, text)
}

// yamlValue formats v on one line as the decoder reads it.
func (f *field) yamlValue(v reflect.Value) string {
	out, err := yaml.Marshal(f.flow(v))
	if err != nil {
		panic("daemon: " + err.Error()) // the node consists of plain values
	}
	return strings.TrimSuffix(string(out), "\n")
}

// flow returns v as a YAML node in flow style: [a, b], {k: v}.
func (f *field) flow(v reflect.Value) *yaml.Node {
	n := &yaml.Node{Style: yaml.FlowStyle}
	switch f.kind {
	case scalar:
		return scalarNode(v)
	case list:
		n.Kind = yaml.SequenceNode
		f.walk(v, "", func(e *field, ev reflect.Value, _ string) { n.Content = append(n.Content, e.flow(ev)) })
	case section:
		n.Kind = yaml.MappingNode
		for _, c := range f.children {
			if cv := v.FieldByIndex(c.index); !cv.IsZero() || c.preset != "" {
				n.Content = append(n.Content, textNode(c.name), c.flow(cv))
			}
		}
	case table:
		n.Kind = yaml.MappingNode
		for _, k := range sortedKeys(v) {
			n.Content = append(n.Content, textNode(k.String()), f.elem.flow(v.MapIndex(k)))
		}
	}
	return n
}

func scalarNode(v reflect.Value) *yaml.Node {
	n := textNode(formatScalar(v))
	switch v.Kind() {
	case reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Float32, reflect.Float64:
		n.Tag = "" // plain: its text determines its type
	}
	return n
}

// textNode returns a string node; Marshal quotes it where it would read as another type.
func textNode(text string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text}
	if strings.ContainsAny(text, "\n\r") {
		n.Style = yaml.DoubleQuotedStyle // the other styles take several lines
	}
	return n
}

package profile

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// This file reads the JobProfile of QCG-OMPI (Fig. 3 of its paper):
//
//	grmsJob@appId
//	  resourceTemplates
//	    networkResourceTemplate@templateId
//	      networkParameter@name{bandwidth: min | latency: max}
//	  task
//	    resourcesDescription/topology/group@groupId
//	      processes
//	        processesCount/value
//	        resourceRequirements/computingResource/hostParameter@name{cpucount, cpuspeed, memory: min | value}
//	      processesConnection
//	        networkResource/templateIdReference@templateId                within the group
//	        groupConnection@endpointGroupId/networkResource/...           to another group, both ways
//	    execution: executable, arguments/value, stdin, stdout, stderr, environment/variable@name, file@type{in, out}
//
// The figure leaves the content of processes and execution to comments; the names here are those of
// the job descriptions for which it was designed. A unit follows the number (5ms) or is an
// attribute (unit="ms").

// maxDepth bounds the nesting of elements.
const maxDepth = 64

// An element is an XML element with its content.
type element struct {
	name string
	at   position
	attr map[string]string
	kids []*element
	text strings.Builder // its own
}

func (e *element) value() string { return strings.TrimSpace(e.text.String()) }

// deepest returns the first text in e or below, as in
// <stdin><file><url>in.txt</url></file></stdin>.
func (e *element) deepest() string {
	text := e.value()
	for i := 0; text == "" && i < len(e.kids); i++ {
		text = e.kids[i].deepest()
	}
	return text
}

func parseXML(text []byte) (root *element, err error) {
	dec := xml.NewDecoder(bytes.NewReader(text))
	var open []*element
	for {
		line, column := dec.InputPos()
		token, err := dec.Token()
		if errors.Is(err, io.EOF) && root != nil {
			return root, nil
		}
		if err != nil {
			return nil, fmt.Errorf("not XML: %w", err)
		}
		switch t := token.(type) {
		case xml.StartElement:
			e := &element{name: t.Name.Local, at: position{line, column}, attr: map[string]string{}}
			for _, a := range t.Attr {
				e.attr[a.Name.Local] = strings.TrimSpace(a.Value)
			}
			switch {
			case len(open) == maxDepth:
				return nil, fmt.Errorf("line %d: elements nested %d deep", line, maxDepth+1)
			case len(open) > 0:
				above := open[len(open)-1]
				above.kids = append(above.kids, e)
			case root != nil:
				return nil, fmt.Errorf("line %d: a second document, <%s>", line, e.name)
			default:
				root = e
			}
			open = append(open, e)
		case xml.EndElement:
			open = open[:len(open)-1]
		case xml.CharData:
			if len(open) > 0 {
				open[len(open)-1].text.Write(t)
			}
		}
	}
}

// An xmlReader is a reader of one XML profile.
type xmlReader struct {
	*reader
	p         *Profile
	templates map[string]Network
	later     []func() // run when all groups are known
}

// inside maps the names of the elements within an element to their readers.
type inside map[string]func(*element)

func (r *reader) xml(p *Profile, text []byte) {
	root, err := parseXML(text)
	if err != nil {
		r.addError(position{}, "", "%w", err)
		return
	}
	if root.name != "grmsJob" {
		r.addError(root.at, root.name, "is no job profile; that begins with <grmsJob appId=...>")
		return
	}
	x := &xmlReader{reader: r, p: p, templates: map[string]Network{}}
	p.Job, r.at["job"] = root.attr["appId"], root.at
	// Templates may follow their references.
	for _, e := range root.kids {
		if e.name == "resourceTemplates" {
			x.within(e, inside{"networkResourceTemplate": x.template})
		}
	}
	tasks := 0
	x.within(root, inside{
		"resourceTemplates": func(*element) {},
		"task": func(e *element) {
			if tasks++; tasks == 2 {
				r.addError(e.at, "grmsJob/task", "is the second task; give each a profile of its own")
			}
			if tasks == 1 {
				x.task(e)
			}
		},
	})
	for _, f := range x.later {
		f()
	}
	for i := range p.Groups {
		p.Groups[i].Sites = someSites(p.Groups[i].Inside)
	}
	r.relate(p)
}

// within reads the elements below e, and records the unknown ones as ignored.
func (x *xmlReader) within(e *element, known inside) {
	for _, k := range e.kids {
		if read := known[k.name]; read != nil {
			read(k)
		} else if len(x.p.Ignored) < maxFaults {
			x.p.Ignored = append(x.p.Ignored, fmt.Sprintf("line %d: <%s> in <%s> is not read", k.at.line, k.name, e.name))
		}
	}
}

func (x *xmlReader) task(e *element) {
	x.within(e, inside{
		"resourcesDescription": func(e *element) {
			x.within(e, inside{"topology": func(e *element) { x.within(e, inside{"group": x.group}) }})
		},
		"execution": x.execution,
	})
}

func (x *xmlReader) template(e *element) {
	id := e.attr["templateId"]
	key := "networkResourceTemplate " + strconv.Quote(id)
	if _, twice := x.templates[id]; twice || id == "" {
		x.addError(e.at, key, "wants a templateId that no other has")
	}
	x.templates[id] = x.parameters(e, key)
}

func (x *xmlReader) parameters(e *element, key string) (n Network) {
	x.within(e, inside{"networkParameter": func(e *element) {
		name := e.attr["name"]
		key := key + "/" + name
		switch name {
		case "bandwidth":
			if text, at := x.bound(e, key, "min", "kbit/s"); text != "" {
				read(x.reader, at, key, text, ParseRate, &n.Bandwidth)
			}
		case "latency":
			if text, at := x.bound(e, key, "max", "ms"); text != "" {
				read(x.reader, at, key, text, ParseLatency, &n.Latency)
			}
		default:
			x.addError(e.at, key, "is a demand that is not known; known here: bandwidth, latency")
		}
	}})
	return n
}

// bound returns the text of the one bound that a demand may have, with its unit. The bound may also
// be called value.
func (x *xmlReader) bound(e *element, key, name, unit string) (text string, at position) {
	at = e.at
	for _, k := range e.kids {
		if k.name != name && k.name != "value" {
			x.addError(k.at, key+"/"+k.name, "is no bound of this; known here: %s, value", name)
			return "", at
		}
		if text != "" {
			x.addError(k.at, key, "has two bounds; want one <%s>", name)
			return "", at
		}
		if u := k.attr["unit"]; u != "" {
			unit = u
		}
		if text, at = k.value(), k.at; text != "" && strings.Trim(text, "0123456789.") == "" {
			text += unit
		}
	}
	if text == "" {
		x.addError(at, key, "has no bound; write <%s> with a number and its unit", name)
	}
	return text, at
}

func (x *xmlReader) group(e *element) {
	if len(x.p.Groups) > MaxGroups {
		return // relate reports the fault
	}
	i := len(x.p.Groups)
	x.p.Groups = append(x.p.Groups, Group{Name: e.attr["groupId"], Cores: 1})
	key := "groups[" + strconv.Itoa(i) + "]"
	x.at[key] = e.at
	g := &x.p.Groups[i]
	x.within(e, inside{
		"processes": func(e *element) { x.at[key+".processes"] = e.at; x.processes(e, g) },
		"processesConnection": func(e *element) {
			x.within(e, inside{
				"networkResource": func(e *element) { g.Inside = g.Inside.tighten(x.resource(e, g.Name)) },
				"groupConnection": func(e *element) { x.later = append(x.later, func() { x.connection(i, e) }) },
			})
		},
	})
	if g.Processes == 0 {
		x.wrongAt(key+".processes", "group %q gives no number of processes; write <processesCount><value>4</value></processesCount> in <processes>", g.Name)
	}
}

// processes reads the requirements of a group's processes into g, which it does not retain.
func (x *xmlReader) processes(e *element, g *Group) {
	key := "group " + strconv.Quote(g.Name) + "/processes"
	x.within(e, inside{
		"processesCount": func(e *element) { g.Processes += x.integer(e.at, key+"/processesCount", e.deepest()) },
		"resourceRequirements": func(e *element) {
			x.within(e, inside{"computingResource": func(e *element) {
				x.within(e, inside{"hostParameter": func(e *element) { x.hostParameter(e, key, g) }})
			}})
		},
	})
}

func (x *xmlReader) hostParameter(e *element, key string, g *Group) {
	name := e.attr["name"]
	key += "/" + name
	switch name {
	case "cpucount":
		if text, at := x.bound(e, key, "min", ""); text != "" {
			g.Cores = x.integer(at, key, text)
		}
	case "cpuspeed":
		if text, at := x.bound(e, key, "min", ""); text != "" {
			read(x.reader, at, key, text, ParseFrequency, &g.Speed)
		}
	case "memory":
		if text, at := x.bound(e, key, "min", ""); text != "" {
			read(x.reader, at, key, text, ParseBytes, &g.Memory)
		}
	default:
		x.addError(e.at, key, "is a demand that is not known; known here: cpucount, cpuspeed, memory")
	}
}

// resource reads the limits of a networkResource of a group: its own, and those of the templates
// that it refers to. All of them must be kept.
func (x *xmlReader) resource(e *element, group string) Network {
	key := "group " + strconv.Quote(group) + "/networkResource"
	var n Network
	x.within(e, inside{
		"templateIdReference": func(e *element) {
			t, ok := x.templates[e.attr["templateId"]]
			if !ok {
				x.addError(e.at, key+" "+strconv.Quote(e.attr["templateId"]), "there is no networkResourceTemplate of this templateId")
			}
			n = n.tighten(t)
		},
		"networkParameter": func(*element) {}, // read below, all at once
	})
	return n.tighten(x.own(e, key))
}

// own reads the limits in a networkResource itself.
func (x *xmlReader) own(e *element, key string) Network {
	only := &element{name: e.name, at: e.at}
	for _, k := range e.kids {
		if k.name == "networkParameter" {
			only.kids = append(only.kids, k)
		}
	}
	return x.parameters(only, key)
}

// connection reads the limits between group i and another. Each of the two may list the other; then
// both limits must be kept.
func (x *xmlReader) connection(i int, e *element) {
	name := x.p.Groups[i].Name
	key := "group " + strconv.Quote(name) + "/groupConnection " + strconv.Quote(e.attr["endpointGroupId"])
	j, ok := x.reader.group(x.p, e.at, key, e.attr["endpointGroupId"])
	if !ok {
		return
	}
	if i == j {
		x.addError(e.at, key, "leads to the group itself; limits within a group stand in its networkResource")
		return
	}
	var n Network
	x.within(e, inside{"networkResource": func(e *element) { n = n.tighten(x.resource(e, name)) }})
	b := Between{A: min(i, j), B: max(i, j), Network: n}
	at := slices.IndexFunc(x.p.Between, func(o Between) bool { return o.A == b.A && o.B == b.B })
	if at >= 0 {
		x.p.Between[at].Network = n.tighten(x.p.Between[at].Network)
		return
	}
	x.at["between["+strconv.Itoa(len(x.p.Between))+"]"] = e.at
	x.p.Between = append(x.p.Between, b)
}

func (x *xmlReader) execution(e *element) {
	p := &x.p.Program
	add := func(list *[]string, key string, e *element, text string) {
		if len(*list) == MaxWords {
			x.addError(e.at, key, "more than %d", MaxWords)
			return
		}
		*list = append(*list, text)
	}
	stage := func(e *element) {
		switch e.attr["type"] {
		case "in":
			add(&p.Inputs, "execution/file in", e, e.deepest())
		case "out":
			add(&p.Outputs, "execution/file out", e, e.deepest())
		default:
			x.addError(e.at, "execution/file", "type %q; want in or out", e.attr["type"])
		}
	}
	x.within(e, inside{
		"executable": func(e *element) { p.Path = e.deepest() },
		"stdin":      func(e *element) { p.Stdin = e.deepest() },
		"stdout":     func(e *element) { p.Stdout = e.deepest() },
		"stderr":     func(e *element) { p.Stderr = e.deepest() },
		"file":       stage,
		"stageInOut": func(e *element) { x.within(e, inside{"file": stage}) },
		"arguments": func(e *element) {
			x.within(e, inside{"value": func(e *element) { add(&p.Args, "execution/arguments", e, e.value()) }, "file": stage})
		},
		"environment": func(e *element) {
			x.within(e, inside{"variable": func(e *element) {
				if name := e.attr["name"]; name == "" || strings.ContainsAny(name, "=\x00") {
					x.addError(e.at, "execution/environment", "%q is not a variable's name", name)
				} else {
					add(&p.Env, "execution/environment", e, name+"="+e.value())
				}
			}})
		},
	})
}

package profile

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// keys maps the keys of a mapping to the readers of their values.
type keys map[string]func(key string, n *yaml.Node)

func (r *reader) yaml(p *Profile, text []byte) {
	dec := yaml.NewDecoder(bytes.NewReader(text))
	var doc, next yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		r.addError(position{}, "", "empty; write at least groups: with one name and its processes")
		return
	} else if err != nil {
		r.addError(position{}, "", "not YAML: %s", strings.TrimPrefix(err.Error(), "yaml: "))
		return
	}
	if err := dec.Decode(&next); !errors.Is(err, io.EOF) {
		r.addError(position{}, "", "more than one document; remove what follows the second ---")
	}
	var between, similar *yaml.Node // read when all groups are known
	r.mapping("", doc.Content[0], keys{
		"job":     func(key string, n *yaml.Node) { p.Job = r.readString(key, n) },
		"program": func(key string, n *yaml.Node) { r.program(&p.Program, key, n) },
		"groups": func(key string, n *yaml.Node) {
			r.each(key, n, MaxGroups, func(key string, n *yaml.Node) { p.Groups = append(p.Groups, r.groupYAML(key, n)) })
		},
		"between": func(_ string, n *yaml.Node) { between = n },
		"similar": func(_ string, n *yaml.Node) { similar = n },
	})
	if between != nil {
		r.each("between", between, MaxGroups*MaxGroups, func(key string, n *yaml.Node) { r.betweenYAML(p, key, n) })
	}
	if similar != nil {
		r.each("similar", similar, MaxGroups, func(key string, n *yaml.Node) { r.similarYAML(p, key, n) })
	}
	r.relate(p)
}

func (r *reader) program(p *Program, key string, n *yaml.Node) {
	word := func(to *string) func(string, *yaml.Node) {
		return func(key string, n *yaml.Node) { *to = r.readString(key, n) }
	}
	words := func(to *[]string) func(string, *yaml.Node) {
		return func(key string, n *yaml.Node) { *to = r.readStrings(key, n) }
	}
	r.mapping(key, n, keys{
		"path": word(&p.Path), "args": words(&p.Args),
		"stdin": word(&p.Stdin), "stdout": word(&p.Stdout), "stderr": word(&p.Stderr),
		"inputs": words(&p.Inputs), "outputs": words(&p.Outputs),
		"env": func(key string, n *yaml.Node) {
			r.pairsOf(key, n, func(name string, k, v *yaml.Node) {
				if name == "" || strings.ContainsAny(name, "=\x00") || len(p.Env) == MaxWords {
					r.addError(positionOf(k), join(key, name), "is no name of a variable, or the %dth", MaxWords+1)
					return
				}
				p.Env = append(p.Env, name+"="+r.readString(join(key, name), v))
			})
		},
	})
}

func (r *reader) groupYAML(key string, n *yaml.Node) Group {
	g := Group{Cores: 1}
	var sites, processes bool
	r.mapping(key, n, keys{
		"name": func(key string, n *yaml.Node) { g.Name = r.readString(key, n) },
		"processes": func(key string, n *yaml.Node) {
			g.Processes, processes = r.integer(positionOf(n), key, r.readString(key, n)), true
		},
		"cores": func(key string, n *yaml.Node) { g.Cores = r.integer(positionOf(n), key, r.readString(key, n)) },
		"speed": func(key string, n *yaml.Node) {
			read(r, positionOf(n), key, r.readString(key, n), ParseFrequency, &g.Speed)
		},
		"memory": func(key string, n *yaml.Node) {
			read(r, positionOf(n), key, r.readString(key, n), ParseBytes, &g.Memory)
		},
		"sites": func(key string, n *yaml.Node) {
			if sites = true; r.readString(key, n) != "any" {
				g.Sites = r.integer(positionOf(n), key, r.readString(key, n))
			}
		},
		"inside": func(key string, n *yaml.Node) { r.mapping(key, n, r.network(&g.Inside)) },
	})
	if !sites {
		g.Sites = someSites(g.Inside)
	}
	if !processes {
		r.wrongAt(key+".processes", "is missing; write how many processes the group has")
	}
	return g
}

func (r *reader) network(to *Network) keys {
	return keys{
		"latency": func(key string, n *yaml.Node) {
			read(r, positionOf(n), key, r.readString(key, n), ParseLatency, &to.Latency)
		},
		"bandwidth": func(key string, n *yaml.Node) {
			read(r, positionOf(n), key, r.readString(key, n), ParseRate, &to.Bandwidth)
		},
	}
}

func (r *reader) betweenYAML(p *Profile, key string, n *yaml.Node) {
	var b Between
	var groups []int
	ks := r.network(&b.Network)
	ks["groups"] = func(key string, n *yaml.Node) { groups = r.groups(p, key, n, 2) }
	r.mapping(key, n, ks)
	if len(groups) != 2 {
		r.wrongAt(key+".groups", "want two different groups, as in groups: [master, workers]; limits within one group are its inside:")
		return
	}
	b.A, b.B = groups[0], groups[1]
	p.Between = append(p.Between, b)
	r.named["between["+strconv.Itoa(len(p.Between)-1)+"]"] = key
}

func (r *reader) similarYAML(p *Profile, key string, n *yaml.Node) {
	var s Similar
	var power bool
	r.mapping(key, n, keys{
		"groups": func(key string, n *yaml.Node) { s.Groups = r.groups(p, key, n, MaxGroups) },
		"power": func(key string, n *yaml.Node) {
			read(r, positionOf(n), key, r.readString(key, n), parsePercent, &s.Within)
			power = true
		},
	})
	if !power {
		r.wrongAt(key+".power", "is missing; write how far apart the groups' power may be, as in power: 20%%")
	}
	if len(s.Groups) < 2 {
		r.wrongAt(key+".groups", "want two groups or more")
		return
	}
	p.Similar = append(p.Similar, s)
	r.named["similar["+strconv.Itoa(len(p.Similar)-1)+"]"] = key
}

// groups reads names of groups, as indices in ascending order, each once.
func (r *reader) groups(p *Profile, key string, n *yaml.Node, most int) (list []int) {
	r.each(key, n, most, func(key string, n *yaml.Node) {
		if i, ok := r.group(p, positionOf(n), key, r.readString(key, n)); ok {
			list = append(list, i)
		}
	})
	slices.Sort(list)
	return slices.Compact(list)
}

// The functions below read nodes. Aliases cannot make that endless: the keys bound the depth, and
// lists have their bounds.

func positionOf(n *yaml.Node) position { return position{n.Line, n.Column} }

func resolveAlias(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

func join(key, name string) string {
	if key == "" {
		return name
	}
	return key + "." + name
}

func (r *reader) mapping(key string, n *yaml.Node, known keys) {
	r.at[key] = positionOf(n)
	r.pairsOf(key, n, func(name string, k, v *yaml.Node) {
		full := join(key, name)
		r.at[full] = positionOf(v)
		if set := known[name]; set != nil {
			set(full, v)
			return
		}
		var names []string
		for name := range known {
			names = append(names, name)
		}
		slices.Sort(names)
		r.addError(positionOf(k), full, "unknown key; known here: %s", strings.Join(names, ", "))
	})
}

func (r *reader) pairsOf(key string, n *yaml.Node, each func(name string, k, v *yaml.Node)) {
	at := positionOf(n)
	if n = resolveAlias(n); n.Kind != yaml.MappingNode {
		r.addError(at, key, "%s where keys belong", described(n))
		return
	}
	first := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		if k.Kind != yaml.ScalarNode || k.Tag == "!!merge" {
			r.addError(positionOf(k), key, "a key must be one word (merging with << is not supported)")
			continue
		}
		if line, twice := first[k.Value]; twice {
			r.addError(positionOf(k), join(key, k.Value), "given twice; the first is at line %d", line)
			continue
		}
		first[k.Value] = k.Line
		each(k.Value, k, v)
	}
}

func (r *reader) each(key string, n *yaml.Node, most int, each func(key string, n *yaml.Node)) {
	at := positionOf(n)
	if n = resolveAlias(n); n.Kind != yaml.SequenceNode {
		r.addError(at, key, "%s where a list belongs; write [a, b] or one \"- a\" per line", described(n))
		return
	}
	if len(n.Content) > most {
		r.addError(at, key, "a list of %d; at most %d", len(n.Content), most)
		return
	}
	for i, n := range n.Content {
		each(key+"["+strconv.Itoa(i)+"]", n)
	}
}

func (r *reader) readStrings(key string, n *yaml.Node) (list []string) {
	r.each(key, n, MaxWords, func(key string, n *yaml.Node) { list = append(list, r.readString(key, n)) })
	return list
}

func (r *reader) readString(key string, n *yaml.Node) string {
	at := positionOf(n)
	if n = resolveAlias(n); n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
		r.addError(at, key, "%s where one value belongs", described(n))
		return ""
	}
	return n.Value
}

func described(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "keys"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Tag == "!!null":
		return "nothing"
	}
	return strconv.Quote(n.Value)
}

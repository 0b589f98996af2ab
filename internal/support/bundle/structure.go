package bundle

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"
)

// A Form is the grammar of a text.
type Form int

// The forms.
const (
	Plain    Form = iota // lines, some with key=value: a log, for instance
	JSON                 // one value
	Metrics              // the Prometheus format
	Settings             // YAML: settings of a daemon, a policy
	Facts                // contains no names: copied unchanged
)

// nameKeys maps keys of settings, statuses, logs and labels whose values are names to the class; a
// list's values count, too.
var nameKeys = map[string]string{
	"site": Site, "asker": Site, "target": Site, "plain_with": Site, "sites": Site, "to": Site, "from": Site, "to_site": Site, "from_site": Site,
	"user": User, "users": User, "who": User,
	"project": Project, "projects": Project,
	"job": Job, "jobs": Job,
	"node": Host, "nodes": Host, "host": Host, "hosts": Host, "broker": Host, "proxy": Host, "helper": Host, "frontal": Host, "self": Host,
	"peer": Host, "address": Host, "addresses": Host, "advertise": Host, "listen": Host, "relay": Host, "brokers": Host,
	"name": Name, "rule": Name, "contact": Host, "zone": Name,
}

// mapKeys are keys whose value is an object with names as keys.
var mapKeys = map[string]string{
	"jobs": Job, "processes": Site, "users": User, "projects": Project, "sites": Site, "helpers": Host, "nodes": Host,
}

// textKeys are keys whose values are sentences or words of the suite's own. Names in them are found
// as in plain text; values of all other keys are masked whole.
var textKeys = func() map[string]bool {
	all := map[string]bool{}
	for _, k := range strings.Fields(`technique technique_name reason cause error text msg message level state status class layer evidence meaning device fix
		inbound filter refusal mapping filtering keeps_port egress udp ipv6 gateway_only privileged field declared measured differs effect mode
		kind what when limit limits rate protocol direction source destination port seen required elsewhere forbidden techniques
		version goversion software daemon result way le quantile profile event format on_failure key method contact_by days setting time
		from to since until started severity file origin outcome`) {
		all[k] = true
	}
	return all
}()

// LearnFrom remembers the names in a text of the form.
func (m *Mask) LearnFrom(form Form, text []byte) {
	if m.keep {
		return
	}
	switch form {
	case JSON:
		if v, err := decode(text); err == nil {
			m.learnValue("", v)
		}
	case Metrics:
		for line := range strings.Lines(string(text)) {
			for _, l := range label.FindAllStringSubmatch(line, -1) {
				if v, err := strconv.Unquote(l[2]); err == nil && !closed(l[1], v) && nameKeys[l[1]] != "" {
					m.Learn(nameKeys[l[1]], v)
				}
			}
		}
	case Settings:
		var doc any
		if yaml.Unmarshal(text, &doc) == nil {
			m.learnValue("", doc)
		}
	case Plain:
		for line := range strings.Lines(string(text)) {
			if v, err := decode([]byte(line)); err == nil {
				m.learnValue("", v)
				continue
			}
			for _, f := range pair.FindAllStringSubmatch(line, -1) {
				v := f[2]
				if u, err := strconv.Unquote(v); err == nil {
					v = u
				}
				m.learnString(f[1], v)
			}
			for _, f := range spoken.FindAllStringSubmatch(line, -1) {
				m.Learn(Host, f[1])
			}
		}
	}
}

var (
	label  = regexp.MustCompile(`([a-zA-Z_][a-zA-Z0-9_]*)=("(?:[^"\\]|\\.)*")`)
	pair   = regexp.MustCompile(`([a-zA-Z_][a-zA-Z0-9_.]*)=("(?:[^"\\]|\\.)*"|[^\s"]+)`)
	spoken = regexp.MustCompile(`\b(?:helper|node|host) ([a-z0-9][a-z0-9._-]*/[a-z0-9][a-z0-9._-]*)`)
)

func (m *Mask) learnValue(key string, v any) {
	switch v := v.(type) {
	case string:
		m.learnString(key, v)
	case json.Number, int:
		if nameKeys[key] == Job || nameKeys[key] == User {
			m.learnString(key, fmt.Sprint(v))
		}
	case []any:
		for _, one := range v {
			m.learnValue(elementKey(key, one), one)
		}
	case map[string]any:
		class := mapKeys[key]
		for k, one := range v {
			if class != "" {
				m.learnName(class, k)
			}
			m.learnValue(k, one)
		}
	}
}

// learnString learns the value of a key, if that is a name.
func (m *Mask) learnString(key, value string) {
	class, ok := nameKeys[key[strings.LastIndex(key, ".")+1:]]
	if !ok || closed(key, value) {
		return
	}
	if key == "from" || key == "to" { // of a link: addresses; otherwise not a name
		return
	}
	m.learnName(class, value)
}

// learnName learns a name; for a job's id also the name that its user gave it.
func (m *Mask) learnName(class, name string) {
	m.Learn(class, name)
	if class == Job {
		if i := strings.LastIndexByte(name, '-'); i > 0 && len(name)-i > 32 {
			m.Learn(class, name[:i])
		}
	}
}

// closed reports whether a value is one of a small closed set that identifies no one: labels of
// metrics share their keys with names.
func closed(key, value string) bool {
	switch key {
	case "from":
		return strings.Contains(" cache broker shared refused fault ", " "+value+" ")
	case "rule":
		return strings.Contains(" session ticket ", " "+value+" ")
	}
	return false
}

// Mask returns a text of the form without what identifies its origin.
func (m *Mask) Mask(form Form, text []byte) ([]byte, error) {
	switch form {
	case Facts:
		return text, nil
	case JSON:
		v, err := decode(text)
		if err != nil {
			return nil, fmt.Errorf("not JSON: %w", err)
		}
		return json.MarshalIndent(m.value("", v), "", "  ")
	case Metrics:
		var b bytes.Buffer
		for line := range strings.Lines(string(text)) {
			b.WriteString(m.sample(line))
		}
		return b.Bytes(), nil
	case Settings:
		var doc yaml.Node
		if err := yaml.Unmarshal(text, &doc); err != nil {
			return nil, errors.New("not YAML") // the error quotes the text
		}
		m.node("", &doc, 0)
		return yaml.Marshal(&doc)
	}
	var b bytes.Buffer
	for line := range strings.Lines(m.noPEM(string(text))) {
		if v, err := decode([]byte(line)); err == nil {
			if _, object := v.(map[string]any); object {
				one, err := json.Marshal(m.value("", v))
				if err != nil {
					return nil, err
				}
				b.Write(append(one, '\n'))
				continue
			}
		}
		b.WriteString(m.line(line))
	}
	return b.Bytes(), nil
}

// decode reads one JSON value and nothing after it.
func decode(text []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("more than one value")
	}
	return v, nil
}

// elementKey returns the key for an element of a list: an object in it has fields, not names.
func elementKey(key string, element any) string {
	if _, object := element.(map[string]any); object {
		return ""
	}
	return key
}

func (m *Mask) value(key string, v any) any {
	switch v := v.(type) {
	case string:
		return m.stringOf(key, v)
	case []any:
		for i := range v {
			v[i] = m.value(elementKey(key, v[i]), v[i])
		}
	case map[string]any:
		out := make(map[string]any, len(v))
		class := mapKeys[key]
		for k, one := range v {
			name := m.Text(k)
			if class != "" && name == k && !m.keep && !ordinary[k] {
				name = m.maskWhole(class, k)
			}
			out[name] = m.value(k, one)
		}
		return out
	case json.Number:
		if class := nameKeys[key]; (class == Job || class == User) && !m.keep {
			return m.maskWhole(class, v.String())
		}
	}
	return v
}

// secretKeys are keys whose values are removed, whatever they are.
var secretKeys = regexp.MustCompile(`(?i)(^|_)(password|passwd|secret|token|authorization|credential|private_key|job_key)$`)

// stringOf masks the value of a key.
func (m *Mask) stringOf(key, value string) string {
	if secretKeys.MatchString(key) && value != "" {
		m.counts["secret"]++
		return Removed
	}
	masked := m.Text(value)
	if m.keep || masked != value || isHarmless(value) || textKeys[key] || ordinary[value] || closed(key, value) {
		return masked
	}
	class := nameKeys[key]
	if class == "" {
		class = "text"
	}
	return m.maskWhole(class, value)
}

// quantity is a number, possibly with a unit, a duration, a range or a port.
var quantity = regexp.MustCompile(`^[+-]?\d+(\.\d+)?([eE][+-]?\d+)?(ns|us|µs|ms|s|m|h|d|%|[kKMGT]?i?B|[kKMGT]?bit/s|[kKMGT]i?)?([\d.]+(m|s|ms))*([:-]\d+)?$`)

// harmlessWords are values of settings from closed sets.
var harmlessWords = func() map[string]bool {
	all := map[string]bool{}
	for _, w := range strings.Fields(`auto any none open ports drop reset true false yes no stateless stateful strict http-proxy
		endpoint-independent address-dependent address-and-port-dependent
		direct port-range reversed simultaneous-open traversing hole-punching relay same-node
		debug info warn error text json go-on refuse load turn enforce dry-run allow deny UTC
		mon tue wed thu fri sat sun mon-fri sat-sun tcp udp in out ok failed warning not-checked connected away up down`) {
		all[w] = true
	}
	return all
}()

func isHarmless(value string) bool {
	if value == "" || harmlessWords[value] || quantity.MatchString(value) {
		return true
	}
	_, err := time.Parse(time.RFC3339Nano, value)
	return err == nil
}

// sample masks the labels of one line of metrics.
func (m *Mask) sample(line string) string {
	if strings.HasPrefix(line, "#") {
		return line // the suite's own words
	}
	return label.ReplaceAllStringFunc(line, func(l string) string {
		key, quoted, _ := strings.Cut(l, "=")
		v, err := strconv.Unquote(quoted)
		if err != nil {
			m.counts["text"]++
			return key + `="` + Removed + `"`
		}
		if v == "other" || nameKeys[key] == "" && textKeys[key] {
			return l
		}
		return key + "=" + strconv.Quote(m.stringOf(key, v))
	})
}

// maxDepth bounds YAML's nesting.
const maxDepth = 50

func (m *Mask) node(key string, n *yaml.Node, depth int) {
	n.HeadComment, n.LineComment, n.FootComment = "", "", "" // people write names there
	if depth > maxDepth || n.Kind == yaml.AliasNode {
		*n = yaml.Node{Kind: yaml.ScalarNode, Value: Removed}
		return
	}
	n.Anchor = ""
	switch n.Kind {
	case yaml.ScalarNode:
		if n.Value != "" {
			n.Value = m.stringOf(key, n.Value)
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			k := n.Content[i]
			own := k.Value
			k.HeadComment, k.LineComment, k.FootComment, k.Anchor = "", "", "", ""
			if k.Kind != yaml.ScalarNode {
				*k = yaml.Node{Kind: yaml.ScalarNode, Value: Removed}
			} else if !m.keep && !m.words[strings.ToLower(own)] {
				k.Value = m.maskWhole("key", own)
			}
			m.node(own, n.Content[i+1], depth+1)
		}
	default:
		for _, c := range n.Content {
			m.node(key, c, depth+1)
		}
	}
}

package bundle

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// Classes of names. They are the first part of pseudonyms.
const (
	Site    = "site"
	User    = "user"
	Project = "project"
	Job     = "job"
	Host    = "host" // nodes, and hosts by DNS name
	Name    = "name" // of anything else
)

// MaxNames bounds the names that a Mask remembers.
const MaxNames = 100_000

// Removed replaces a key, token or password.
const Removed = "[removed]"

// A Mask replaces names by pseudonyms. It belongs to one goroutine.
type Mask struct {
	salt     []byte
	keep     bool                // keep names; secrets are removed all the same
	words    map[string]bool     // the suite's own, which reveal nothing
	names    map[string]string   // class, by name in lower case
	byStart  map[string][]string // names by their first two bytes, long ones first; nil after Learn
	overflow bool
	counts   map[string]int // replaced since the last Counts, by class
}

// NewMask returns a Mask with a salt of its own. Words are those that reveal nothing of a site in a
// path or after a dot: keys of settings, for instance. With keepNames only secrets are removed.
func NewMask(words []string, keepNames bool) *Mask {
	m := &Mask{salt: make([]byte, 32), keep: keepNames, words: map[string]bool{}, names: map[string]string{}, counts: map[string]int{}}
	rand.Read(m.salt) // never fails
	for _, w := range append(words, commonWords...) {
		m.words[strings.ToLower(w)] = true
	}
	return m
}

// commonWords occur in paths and file names of every installation.
var commonWords = strings.Fields(`etc isthmus run var lib usr bin sbin local log tmp home root proc sys dev opt share state net
	broker frontal proxy helper admin policy jobs node audit ca sock socket pem key crt yaml yml json go txt log service systemd
	metrics healthz page status pair self fd revoked quota used tokens data host wan`)

// ordinary are names that identify no one although people choose them: masking them would only make
// texts unreadable.
var ordinary = func() map[string]bool {
	all := map[string]bool{}
	for _, w := range strings.Fields(`broker frontal proxy helper admin user gateway isthmus localhost node site job project host jobs node-service
		name none unknown other any all root nobody org com net edu gov example local localdomain home lan the`) {
		all[w] = true
	}
	return all
}()

// Learn remembers a name, so that it is masked wherever it occurs. It splits composite names
// ("site/node", "user@site", "helper site/node", "host:port", "ocean-*"). Addresses need not be
// learned.
func (m *Mask) Learn(class, name string) {
	if m.keep {
		return
	}
	name = strings.Trim(strings.ToLower(strings.TrimSpace(name)), "*?[]")
	if role, rest, ok := strings.Cut(name, " "); ok {
		if !ordinary[role] || strings.ContainsAny(rest, " ") {
			m.learn(class, name) // a name with a blank in it
			return
		}
		name = rest
		switch role {
		case "frontal":
			class = Site
		case "user", "admin":
			class = User
		case "broker", "proxy":
			class = Host
		}
	}
	if user, site, ok := strings.Cut(name, "@"); ok {
		m.learn(User, user)
		m.Learn(Site, site)
		return
	}
	if site, node, ok := strings.Cut(name, "/"); ok {
		if !strings.Contains(node, "/") && site != "" {
			m.Learn(Site, site)
			m.Learn(Host, node)
		}
		return
	}
	if host, _, err := net.SplitHostPort(name); err == nil {
		name, class = host, Host
	}
	if class == Host {
		m.learnHost(name)
		return
	}
	m.learn(class, name)
}

// learnHost remembers a host's name, and its parts that name a place.
func (m *Mask) learnHost(name string) {
	name = strings.Trim(name, "[]*.?-_")
	if _, err := netip.ParseAddr(name); err == nil {
		return
	}
	m.learn(Host, name)
	labels := strings.Split(name, ".")
	for _, l := range labels[:len(labels)-1] {
		if len(l) > 2 && !m.words[l] {
			m.learn(Host, l)
		}
	}
}

func (m *Mask) learn(class, name string) {
	name = strings.Trim(name, "*?[]-_. ")
	if len(name) < 2 || ordinary[name] || m.names[name] != "" || !strings.ContainsFunc(name, isLetter) && len(name) < 4 {
		return
	}
	if len(m.names) >= MaxNames {
		m.overflow = true
		return
	}
	m.names[name], m.byStart = class, nil
}

// Err returns why the Mask cannot mask reliably, or nil.
func (m *Mask) Err() error {
	if m.overflow {
		return fmt.Errorf("more than %d names were found, which is more than can be replaced; collect less, or keep the names (--keep-names) for use inside", MaxNames)
	}
	return nil
}

// Counts returns how many replacements were made in each class since the last call.
func (m *Mask) Counts() map[string]int {
	c := m.counts
	m.counts = map[string]int{}
	return c
}

// pseudonym returns the replacement of a name.
func (m *Mask) pseudonym(class, name string) string {
	m.counts[class]++
	h := hmac.New(sha256.New, m.salt)
	h.Write([]byte(strings.ToLower(name)))
	return class + "-" + strings.ToLower(base32.StdEncoding.EncodeToString(h.Sum(nil)[:5]))
}

// maskWhole masks a text that consists only of a name.
func (m *Mask) maskWhole(class, text string) string {
	if m.keep || text == "" {
		return m.Text(text)
	}
	if known := m.names[strings.ToLower(text)]; known != "" {
		class = known
	}
	return m.pseudonym(class, text)
}

// piece is a part of a text; a done one is final.
type piece struct {
	text string
	done bool
}

// rule finds matches and returns their replacements; false keeps the match.
type rule struct {
	find *regexp.Regexp
	mend func(m *Mask, before, match string) (string, bool)
}

// Text masks a text without structure.
func (m *Mask) Text(text string) string {
	var b strings.Builder
	for line := range strings.Lines(m.noPEM(text)) {
		b.WriteString(m.line(line))
	}
	return b.String()
}

// pemBlock also matches a truncated block. In a log line, line ends may be escaped.
var pemBlock = regexp.MustCompile(`-----BEGIN [A-Z0-9 ]+-----(?s:.*?)(?:-----END [A-Z0-9 ]+-----|\z)`)

func (m *Mask) noPEM(text string) string {
	return pemBlock.ReplaceAllStringFunc(text, func(string) string { m.counts["secret"]++; return Removed })
}

func (m *Mask) line(text string) string {
	pieces := []piece{{text, false}}
	rules := nameRules
	if m.keep {
		rules = secretRules
	}
	for _, r := range rules {
		pieces = m.apply(r, pieces)
	}
	var b strings.Builder
	for _, p := range pieces {
		if p.done || m.keep {
			b.WriteString(p.text)
		} else {
			b.WriteString(m.replaceNames(p.text))
		}
	}
	return b.String()
}

func (m *Mask) apply(r rule, pieces []piece) []piece {
	var out []piece
	for _, p := range pieces {
		if p.done {
			out = append(out, p)
			continue
		}
		from := 0
		for _, at := range r.find.FindAllStringIndex(p.text, -1) {
			with, ok := r.mend(m, p.text[:at[0]], p.text[at[0]:at[1]])
			if !ok {
				continue
			}
			out = append(out, piece{p.text[from:at[0]], false}, piece{with, true})
			from = at[1]
		}
		out = append(out, piece{p.text[from:], false})
	}
	return out
}

// The rules, in the order in which they are applied: longer matches first, so that nothing is
// replaced in part.
var (
	assignment = rule{regexp.MustCompile(`(?i)[\w.-]*(?:password|passwd|secret|token|authorization|bearer|credential|key)"?(?:=|: ?)(?:"(?:[^"\\]|\\.)*"|[^\s,;"]+)`),
		func(m *Mask, _, match string) (string, bool) {
			i := strings.IndexAny(match, "=:")
			m.counts["secret"]++
			return match[:i+1] + Removed, true
		}}
	encoded = rule{regexp.MustCompile(`(?:isthmus-token-|eyJ)[A-Za-z0-9+/_=.-]+|[A-Za-z0-9+/_=-]{20,}`), func(m *Mask, _, match string) (string, bool) {
		if !strings.HasPrefix(match, "isthmus-token-") && !strings.HasPrefix(match, "eyJ") && !random(match) {
			return "", false
		}
		m.counts["secret"]++
		return Removed, true
	}}
	secretRules = []rule{assignment, encoded}

	nameRules []rule // set by init: path refers to them
)

func init() {
	nameRules = []rule{
		assignment,
		encoded,
		{regexp.MustCompile(`[A-Za-z0-9._%+-]+@[A-Za-z0-9._-]+`), (*Mask).address},
		{regexp.MustCompile(`/[^\s"'()\[\]:,;<>\\]+`), (*Mask).path},
		{regexp.MustCompile(`[0-9A-Fa-f]*:[0-9A-Fa-f:]*:[0-9A-Fa-f:.]*(?:%[\w.-]+)?`), (*Mask).ipv6},
		{regexp.MustCompile(`\d{1,3}(?:\.\d{1,3}){3}|\d{1,3}(?:-\d{1,3}){3}`), (*Mask).ipv4},
		{regexp.MustCompile(`[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)+`), (*Mask).host},
		{regexp.MustCompile(`[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|[0-9a-fA-F]{16,}`), func(m *Mask, _, match string) (string, bool) {
			return m.pseudonym("id", match), true
		}},
	}
}

// address masks what looks like a mail address, or like a user at a site.
func (m *Mask) address(_, match string) (string, bool) {
	user, at, _ := strings.Cut(match, "@")
	end := at[len(strings.TrimRight(at, "._-")):] // punctuation of the sentence
	at = strings.TrimSuffix(at, end)
	if at == "" {
		return "", false
	}
	class := Host
	if !strings.Contains(at, ".") {
		class = Site
	}
	return m.maskWhole(User, user) + "@" + m.maskWhole(class, at) + end, true
}

// path masks the parts of an absolute path that are not common to every installation.
func (m *Mask) path(before, match string) (string, bool) {
	if r := lastRune(before); isLetter(r) || digit(r) || r == '.' || r == '-' || r == '_' || r == '*' || r == ']' {
		return "", false // a node's name, a network, a rate
	}
	parts := strings.Split(match, "/")
	for i, part := range parts {
		if !m.plain(part) {
			ext := ""
			if j := strings.LastIndex(part, "."); j > 0 && m.words[part[j+1:]] && !digitsAndDots(part) {
				part, ext = part[:j], part[j:]
			}
			parts[i] = m.maskWhole("path", part) + ext
		}
	}
	return strings.Join(parts, "/"), true
}

// plain reports whether a part of a path or a dotted name consists of words that reveal nothing.
func (m *Mask) plain(part string) bool {
	for _, word := range strings.FieldsFunc(part, func(r rune) bool { return r == '.' || r == '-' }) {
		if w := strings.ToLower(word); !m.words[w] || m.names[w] != "" {
			return false
		}
	}
	return true
}

func (m *Mask) ipv6(before, match string) (string, bool) {
	if r := lastRune(before); isLetter(r) || digit(r) {
		return "", false
	}
	text, _, _ := strings.Cut(match, "%")
	end := ""
	if t := strings.TrimRight(text, "."); t != text {
		text, end = t, text[len(t):]
	}
	a, err := netip.ParseAddr(text)
	if err != nil && strings.HasSuffix(text, ":") {
		if a, err = netip.ParseAddr(text[:len(text)-1]); err == nil {
			text, end = text[:len(text)-1], ":"+end
		}
	}
	switch {
	case err == nil && a.Is4In6():
		return m.addr(a.Unmap()) + end, true
	case err == nil:
		return m.addr(a) + end, true
	case strings.Contains(text, "::") && len(text) > 3 || strings.Count(text, ":") >= 4:
		return m.pseudonym("id", text) + end, true // a hardware address, a fingerprint, or an address with a suffix
	}
	return "", false
}

func (m *Mask) ipv4(before, match string) (string, bool) {
	if r := lastRune(before); digit(r) {
		return "", false
	}
	a, err := netip.ParseAddr(strings.ReplaceAll(match, "-", "."))
	if err != nil {
		return "", false
	}
	return m.addr(a), true
}

// addr masks an address but keeps its kind; loopback and unspecified addresses are the same
// everywhere.
func (m *Mask) addr(a netip.Addr) string {
	kind := "public"
	switch {
	case a.IsLoopback(), a.IsUnspecified():
		return a.String()
	case a.IsPrivate():
		kind = "private"
	case a.IsLinkLocalUnicast():
		kind = "linklocal"
	case a.IsMulticast():
		kind = "multicast"
	}
	class := "ipv6"
	if a.Is4() {
		class = "ipv4"
	}
	name := a.WithZone("").String()
	return strings.Replace(m.pseudonym(class, name), class, class+"-"+kind, 1)
}

// wellKnown are public hosts of source code, as in a stack trace.
var wellKnown = map[string]bool{"github.com": true, "golang.org": true, "google.golang.org": true, "gopkg.in": true, "go.yaml.in": true}

// extensions are suffixes of file names, not top-level domains.
var extensions = map[string]bool{"go": true, "yaml": true, "json": true, "pem": true, "key": true, "crt": true, "log": true, "sock": true, "txt": true, "prom": true, "service": true, "jsonl": true}

// host masks a host's DNS name.
func (m *Mask) host(_, match string) (string, bool) {
	labels := strings.Split(match, ".")
	last := labels[len(labels)-1]
	switch {
	case wellKnown[match], m.plain(match):
		return "", false
	case len(last) < 2 || strings.ContainsFunc(last, func(r rune) bool { return !isLetter(r) }) && !strings.HasPrefix(last, "xn--"):
		return "", false // a number
	case extensions[last]:
		return "", false
	case last[0] >= 'A' && last[0] <= 'Z' && strings.ToUpper(last) != last && strings.ToLower(labels[0]) == labels[0]:
		return "", false // an identifier of the program: connhelper.Dial
	}
	return m.maskWhole(Host, match), true
}

// replaceNames masks the learned names. A long one is found within words, too; a short one only as
// a whole word.
func (m *Mask) replaceNames(text string) string {
	if m.byStart == nil {
		m.byStart = map[string][]string{}
		for _, name := range slices.SortedFunc(maps.Keys(m.names), func(a, b string) int { return len(b) - len(a) }) {
			m.byStart[name[:2]] = append(m.byStart[name[:2]], name)
		}
	}
	lower := asciiLower(text)
	var b strings.Builder
	from := 0
	for i := 0; i+2 <= len(lower); i++ {
		for _, name := range m.byStart[lower[i:i+2]] {
			if !strings.HasPrefix(lower[i:], name) || !(len(name) >= 6 && strings.ContainsFunc(name, isLetter)) && !(begins(text, i) && ends(text, i+len(name))) {
				continue
			}
			b.WriteString(text[from:i])
			b.WriteString(m.pseudonym(m.names[name], name))
			i += len(name) - 1
			from = i + 1
			break
		}
	}
	return b.String() + text[from:]
}

// begins reports whether a word may begin at i: after anything but a letter or digit, and after an
// escape sequence, whose last character is one.
func begins(text string, i int) bool {
	if i == 0 || !isLetter(rune(text[i-1])) && !digit(rune(text[i-1])) {
		return true
	}
	for _, n := range []int{2, 3, 4, 6} { // \n %2F \x1b \u003c
		if i >= n && (text[i-n] == '\\' || n == 3 && text[i-n] == '%') {
			return true
		}
	}
	return false
}

func ends(text string, i int) bool {
	return i == len(text) || !isLetter(rune(text[i])) && !digit(rune(text[i]))
}

// random reports whether a long token looks machine-generated: it mixes all kinds of characters, or
// letters and digits without a pattern.
func random(token string) bool {
	upper, lower, digits := 0, 0, 0
	for _, r := range token {
		switch {
		case digit(r):
			digits++
		case r >= 'A' && r <= 'Z':
			upper++
		case isLetter(r):
			lower++
		}
	}
	return digits > 0 && upper > 0 && lower > 0 || len(token) >= 24 && digits >= 4 && (upper == 0) != (lower == 0) && !strings.ContainsAny(token, "_-/")
}

func isLetter(r rune) bool { return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= 0x80 }
func digit(r rune) bool    { return r >= '0' && r <= '9' }

func digitsAndDots(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return !digit(r) && r != '.' })
}

func lastRune(s string) rune {
	if s == "" {
		return 0
	}
	return rune(s[len(s)-1])
}

// asciiLower keeps every byte's position, which strings.ToLower does not.
func asciiLower(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, s)
}

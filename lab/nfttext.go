package lab

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// An nftTable is a table block of nft's language. The supported subset is what presets use: maps,
// sets, base chains and rules, one statement per line.
type nftTable struct {
	family, name string
	maps         []nftMap
	chains       []nftChain
}

// An nftMap is a map, or a set if it has no data, that rules fill: update and add statements create
// its elements, which expire after timeout.
type nftMap struct {
	name      string
	key, data []string // type names, joined by "." in the text
	size      uint32
	timeout   time.Duration
}

type nftChain struct {
	name, kind, hook string
	priority         string // srcnat, or a number added to it as in "srcnat + 50"
	offset           int32
	drop             bool // the policy
	rules            [][]string
}

// nftToken matches one word, quoted string, IPv6 address or sign of a rule.
var nftToken = regexp.MustCompile(`"[^"]*"|[0-9a-f]+:[0-9a-f:]*:[0-9a-f]*|@ih,\d+,\d+|[\w./@-]+|==|!=|[{}:;,()|&+]`)

// parseNFT parses the tables of text.
func parseNFT(text string) ([]nftTable, error) {
	p := nftParser{}
	for line := range strings.Lines(text) {
		if rest := strings.TrimSpace(nftToken.ReplaceAllString(line, "")); rest != "" {
			return nil, fmt.Errorf("rules: %q in %q is not understood", rest, strings.TrimSpace(line))
		}
		p.line = strings.TrimSpace(line)
		if err := p.statement(nftToken.FindAllString(line, -1)); err != nil {
			return nil, fmt.Errorf("rules: %q: %w", p.line, err)
		}
	}
	if p.table != nil {
		return nil, fmt.Errorf("rules: table %s is not closed", p.table.name)
	}
	return p.tables, nil
}

// An nftParser holds the open blocks.
type nftParser struct {
	tables []nftTable
	table  *nftTable // open, or nil
	chain  *nftChain // open, or nil
	line   string
}

func (p *nftParser) statement(w []string) error {
	switch {
	case len(w) == 0:
	case w[0] == "}" && len(w) == 1:
		return p.close()
	case p.chain != nil:
		p.chain.rules = append(p.chain.rules, w)
	case p.table == nil && w[0] == "table" && len(w) == 4 && w[3] == "{":
		p.table = &nftTable{family: w[1], name: w[2]}
	case p.table != nil && (w[0] == "map" || w[0] == "set"):
		return p.parseMap(w)
	case p.table != nil && w[0] == "chain":
		return p.parseChain(w)
	default:
		return fmt.Errorf("unexpected statement")
	}
	return nil
}

func (p *nftParser) close() error {
	switch {
	case p.chain != nil:
		p.table.chains = append(p.table.chains, *p.chain)
		p.chain = nil
	case p.table != nil:
		p.tables = append(p.tables, *p.table)
		p.table = nil
	default:
		return fmt.Errorf("nothing is open here")
	}
	return nil
}

// chainRE matches the rest of a chain's line; the policy may be missing.
var chainRE = regexp.MustCompile(`^chain (\w+) \{ type (\w+) hook (\w+) priority (\w+)(?: \+ (\d+))?(?: ; policy (\w+))?$`)

func (p *nftParser) parseChain(w []string) error {
	m := chainRE.FindStringSubmatch(strings.Join(w, " "))
	if m == nil {
		return fmt.Errorf("want chain NAME { type TYPE hook HOOK priority PRIORITY; policy POLICY")
	}
	offset, err := strconv.ParseInt("0"+m[5], 10, 32)
	if err != nil {
		return err
	}
	p.chain = &nftChain{name: m[1], kind: m[2], hook: m[3], priority: m[4], offset: int32(offset), drop: m[6] == "drop"}
	return nil
}

var mapRE = regexp.MustCompile(`^(map|set) (\w+) \{ type ([\w. ]+?)(?: : ([\w. ]+))? ; flags timeout , dynamic ; size (\d+) ; timeout (\w+) ; \}$`)

func (p *nftParser) parseMap(w []string) error {
	m := mapRE.FindStringSubmatch(strings.Join(w, " "))
	if m == nil || (m[1] == "map") != (m[4] != "") {
		return fmt.Errorf("want map NAME { type KEY : DATA; flags timeout,dynamic; size N; timeout T; }, or set and no DATA")
	}
	size, err := strconv.ParseUint(m[5], 10, 32)
	if err != nil {
		return err
	}
	timeout, err := time.ParseDuration(m[6])
	if err != nil {
		return err
	}
	read := nftMap{name: m[2], key: splitConcat(m[3]), size: uint32(size), timeout: timeout}
	if m[4] != "" {
		read.data = splitConcat(m[4])
	}
	p.table.maps = append(p.table.maps, read)
	return nil
}

func splitConcat(s string) []string { return strings.Split(s, " . ") }

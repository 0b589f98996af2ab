package lab

import (
	"fmt"
	"strings"
	"sync"

	"github.com/google/nftables"
)

// loadRules installs text in the calling thread's network namespace: all of it or nothing, except
// rules that remove TCP options, which are added afterwards.
func loadRules(text string) error {
	tables, err := parseNFT(text)
	if err != nil {
		return err
	}
	nftMutex.Lock()
	defer nftMutex.Unlock()
	conn, err := nftables.New()
	if err != nil {
		return fmt.Errorf("opening nftables: %w", err)
	}
	var strips []stripRule
	for _, t := range tables {
		more, err := addTable(conn, t)
		if err != nil {
			return err
		}
		strips = append(strips, more...)
	}
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("the kernel refuses the rules (it needs nf_tables with ct, nat and reject): %w", err)
	}
	return stripOptions(strips)
}

// nftMutex lets labs be built concurrently: the nftables package numbers sets with a counter that
// it does not guard.
var nftMutex sync.Mutex

var (
	nftFamilies = map[string]nftables.TableFamily{"inet": nftables.TableFamilyINet, "ip": nftables.TableFamilyIPv4}
	nftHooks    = map[string]*nftables.ChainHook{
		"prerouting": nftables.ChainHookPrerouting, "input": nftables.ChainHookInput, "forward": nftables.ChainHookForward,
		"output": nftables.ChainHookOutput, "postrouting": nftables.ChainHookPostrouting,
	}
	nftPriorities = map[string]nftables.ChainPriority{
		"filter": *nftables.ChainPriorityFilter, "mangle": *nftables.ChainPriorityMangle,
		"srcnat": *nftables.ChainPriorityNATSource, "dstnat": *nftables.ChainPriorityNATDest,
	}
	nftTypes = map[string]nftables.SetDatatype{"ipv4_addr": nftables.TypeIPAddr, "inet_service": nftables.TypeInetService}
)

// addTable returns the rules of the table that conn cannot add.
func addTable(conn *nftables.Conn, t nftTable) ([]stripRule, error) {
	family, ok := nftFamilies[t.family]
	if !ok {
		return nil, fmt.Errorf("rules: unknown family %q", t.family)
	}
	var strips []stripRule
	table := conn.AddTable(&nftables.Table{Name: t.name, Family: family})
	for _, m := range t.maps {
		if err := addMap(conn, table, m); err != nil {
			return nil, err
		}
	}
	for _, c := range t.chains {
		kinds, err := addChain(conn, table, c)
		if err != nil {
			return nil, err
		}
		for _, k := range kinds {
			strips = append(strips, stripRule{family: byte(family), table: t.name, chain: c.name, kinds: k})
		}
	}
	return strips, nil
}

func addMap(conn *nftables.Conn, table *nftables.Table, m nftMap) error {
	key, err := concatType(m.key)
	if err != nil {
		return err
	}
	set := &nftables.Set{
		Table: table, Name: m.name, Dynamic: true, HasTimeout: true,
		KeyType: key, Size: m.size, Timeout: m.timeout, Concatenation: len(m.key) > 1,
	}
	if len(m.data) > 0 {
		set.IsMap = true
		if set.DataType, err = concatType(m.data); err != nil {
			return err
		}
	}
	if err := conn.AddSet(set, nil); err != nil {
		return fmt.Errorf("rules: map %s: %w", m.name, err)
	}
	return nil
}

func concatType(names []string) (nftables.SetDatatype, error) {
	types := make([]nftables.SetDatatype, len(names))
	for i, n := range names {
		t, ok := nftTypes[n]
		if !ok {
			return t, fmt.Errorf("rules: unknown type %q", n)
		}
		types[i] = t
	}
	if len(types) == 1 {
		return types[0], nil
	}
	return nftables.ConcatSetType(types...)
}

// addChain returns the TCP options that each rule removes that conn cannot add.
func addChain(conn *nftables.Conn, table *nftables.Table, c nftChain) (strips [][]byte, err error) {
	hook, okHook := nftHooks[c.hook]
	priority, okPriority := nftPriorities[c.priority]
	if !okHook || !okPriority || c.kind != "filter" && c.kind != "nat" {
		return nil, fmt.Errorf("rules: chain %s: unknown type %q, hook %q or priority %q", c.name, c.kind, c.hook, c.priority)
	}
	policy := nftables.ChainPolicyAccept
	if c.drop {
		policy = nftables.ChainPolicyDrop
	}
	chain := conn.AddChain(&nftables.Chain{
		Name: c.name, Table: table, Hooknum: hook, Policy: &policy,
		Type: nftables.ChainType(c.kind), Priority: nftables.ChainPriorityRef(priority + nftables.ChainPriority(c.offset)),
	})
	for _, words := range c.rules {
		r := ruleReader{words: words}
		if err := r.read(); err != nil {
			return nil, fmt.Errorf("rules: chain %s: %q: %w", c.name, strings.Join(words, " "), err)
		}
		if len(r.strips) > 0 {
			strips = append(strips, r.strips)
			continue
		}
		conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: r.exprs})
	}
	return strips, nil
}

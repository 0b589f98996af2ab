package submit

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/isthmus-grid/isthmus/overlay"
)

// ParseHosts parses hosts and how many ranks each runs: NODE@SITE:RANKS or SITE/NODE:RANKS,
// separated by commas. Either all have a number of ranks or none has.
func ParseHosts(text string) ([]HostShare, error) {
	var all []HostShare
	seen := map[overlay.NodeID]bool{}
	for word := range strings.SplitSeq(text, ",") {
		h, err := parseHost(strings.TrimSpace(word))
		if err != nil {
			return nil, err
		}
		if seen[h.Node] {
			return nil, fmt.Errorf("host %s is named twice", h.Node)
		}
		seen[h.Node] = true
		all = append(all, h)
		if (h.Ranks == 0) != (all[0].Ranks == 0) {
			return nil, fmt.Errorf("host %q: either all hosts have a number of ranks, as in n1@site:8, or none has", word)
		}
	}
	return all, nil
}

func parseHost(word string) (HostShare, error) {
	wrong := func() (HostShare, error) {
		return HostShare{}, fmt.Errorf("host %q: want NODE@SITE:RANKS, such as n1@paris:8, or SITE/NODE:RANKS", word)
	}
	var h HostShare
	name, count, counted := strings.Cut(word, ":")
	if counted {
		n, err := strconv.ParseInt(count, 10, 32)
		if err != nil || n < 1 {
			return wrong()
		}
		h.Ranks = int(n)
	}
	if node, site, ok := strings.Cut(name, "@"); ok {
		name = site + "/" + node
	}
	node, err := overlay.ParseNodeID(name)
	if err != nil {
		return wrong()
	}
	h.Node = node
	return h, nil
}

// ranksOf returns the total number of ranks of the hosts; 0: unspecified.
func ranksOf(hosts []HostShare) (n int) {
	for _, h := range hosts {
		n += h.Ranks
	}
	return n
}

package protocol

import (
	"fmt"
	"strings"
)

// DescribeRanks lists a few ranks and counts the others, with "has" or "have".
func DescribeRanks(ranks []int) string {
	const most = 8
	if len(ranks) == 1 {
		return fmt.Sprintf("rank %d", ranks[0]) + " has"
	}
	var b strings.Builder
	b.WriteString("ranks ")
	for i, r := range ranks[:min(most, len(ranks))] {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprint(&b, r)
	}
	if others := len(ranks) - most; others > 0 {
		fmt.Fprintf(&b, " and %d others", others)
	}
	return b.String() + " have"
}

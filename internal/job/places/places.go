// Package places encodes where the ranks of a job run, for ranks with replicas, whose processes must all take the same
// for it: one line of text in the environment, such as "paris/n1:4,paris/n2:4". Runs of ranks on one node follow each
// other in the order of the ranks.
//
// Launchers write the line, and the message library reads it. The package depends on neither and keeps no state.
package places

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/isthmus-grid/isthmus/overlay"
)

// Env is the variable that holds the line. Without it the places are unknown.
const Env = "ISTHMUS_PLACES"

// MaxText bounds the line, in bytes: systems start no process with a variable of more than 128 KiB.
const MaxText = 64 << 10

// Text returns the line for ranks at these nodes; empty if it would be longer than MaxText.
func Text(nodes []overlay.NodeID) string {
	var b strings.Builder
	for i := 0; i < len(nodes); {
		end := i + 1
		for end < len(nodes) && nodes[end] == nodes[i] {
			end++
		}
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%s:%d", nodes[i].Key(), end-i)
		i = end
	}
	if b.Len() > MaxText {
		return ""
	}
	return b.String()
}

// Parse reads the line for a world of size ranks: the node of each.
func Parse(text string, size int) ([]overlay.NodeID, error) {
	if len(text) > MaxText {
		return nil, fmt.Errorf("places of %d bytes; at most %d", len(text), MaxText)
	}
	var nodes []overlay.NodeID
	for part := range strings.SplitSeq(text, ",") {
		key, digits, ok := strings.Cut(part, ":")
		n, err := strconv.ParseUint(digits, 10, 31)
		if !ok || err != nil || n == 0 || int(n) > size-len(nodes) {
			return nil, fmt.Errorf("places %.200q: %.100q; want SITE/NODE:RANKS between commas, and numbers that add up to the %d ranks", text, part, size)
		}
		node, err := overlay.ParseNodeID(key)
		if err != nil {
			return nil, fmt.Errorf("places %.200q: %w", text, err)
		}
		for range n {
			nodes = append(nodes, node)
		}
	}
	if len(nodes) != size {
		return nil, fmt.Errorf("places %.200q: %d ranks at all nodes, and %d in the job", text, len(nodes), size)
	}
	return nodes, nil
}

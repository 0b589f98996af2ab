package p2p

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Options say how to measure.
type Options struct {
	Self []string // the command line that runs this program as a rank (Part); element 0 is a path

	// Compiler is the command line of "isthmus cc", if programs in C that use our library are to be
	// measured (bench abi) in place of those in Go (bench p2p).
	Compiler []string

	Peers  []string       // implementations to compare with, of PeerNames; those that are not installed are skipped
	Only   *regexp.Regexp // rows to print, by SCENARIO/FIGURE/SIZE/IMPLEMENTATION; nil is all
	Repeat int            // rounds of each figure; 7 if 0
	For    time.Duration  // approximate duration of an implementation's turn; 100 ms if 0
	JSON   bool
	Err    io.Writer // progress messages; not nil
}

// The names of the implementations in rows and orders.
const (
	nameOurs    = "isthmus"
	nameC       = "isthmus-c" // ours for programs in C
	nameOpenMPI = "openmpi"
	nameMPICH   = "mpich"
)

// suite returns what is measured.
func (o *Options) suite() *suite {
	if len(o.Compiler) > 0 {
		return &programs
	}
	return &messages
}

// PeerNames returns the implementations that ours can be compared with.
func PeerNames() []string { return []string{nameOpenMPI, nameMPICH} }

// ParsePeers parses a comma-separated list of PeerNames, or "none".
func ParsePeers(text string) ([]string, error) {
	if text == "none" {
		return nil, nil
	}
	var peers []string
	for name := range strings.SplitSeq(text, ",") {
		if !slices.Contains(PeerNames(), name) || slices.Contains(peers, name) {
			return nil, fmt.Errorf("%q: want some of %s, each once, separated by commas, or none", text, strings.Join(PeerNames(), ", "))
		}
		peers = append(peers, name)
	}
	return peers, nil
}

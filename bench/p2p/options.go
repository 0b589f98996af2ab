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
	// Self is the command line that runs this program as a rank (Part), less
	// Part's role. Element 0 is a path.
	Self []string

	Peers  []string       // whom to compare with, of PeerNames; those that are not installed are left out
	Only   *regexp.Regexp // rows to print, by SCENARIO/FIGURE/SIZE/IMPLEMENTATION; nil is all
	Repeat int            // rounds of each figure; 7 if 0
	For    time.Duration  // how long an implementation is measured at a time, about; 100 ms if 0
	JSON   bool
	Err    io.Writer // for people to see what goes on; not nil
}

// The implementations, as rows and orders call them.
const (
	nameOurs    = "isthmus"
	nameOpenMPI = "openmpi"
	nameMPICH   = "mpich"
)

// PeerNames are whom ours can be compared with.
func PeerNames() []string { return []string{nameOpenMPI, nameMPICH} }

// ParsePeers reads a list of PeerNames between commas, or "none".
func ParsePeers(text string) ([]string, error) {
	if text == "none" {
		return nil, nil
	}
	var peers []string
	for name := range strings.SplitSeq(text, ",") {
		if !slices.Contains(PeerNames(), name) || slices.Contains(peers, name) {
			return nil, fmt.Errorf("%q: want some of %s, each once and with commas between them, or none", text, strings.Join(PeerNames(), ", "))
		}
		peers = append(peers, name)
	}
	return peers, nil
}

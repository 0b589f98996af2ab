package link

import (
	"io"
	"regexp"
)

// Options are the parameters of the measurement.
type Options struct {
	// Self is the command line that runs this program as an end (Part), without Part's role.
	// Element 0 is a path.
	Self []string

	Only   *regexp.Regexp // rows to print, by SCENARIO/FIGURE/SIZE/IMPLEMENTATION; nil is all
	Repeat int            // rounds of each figure; 7 if 0
	Scale  float64        // of the number of messages; 1 if 0
	CC     string         // the C compiler; cc if empty
	JSON   bool
	Err    io.Writer // for progress messages; not nil
}

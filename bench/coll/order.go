package coll

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Rank 0 of a job, in C or Go, prints
//
//	ready VERSION HOST...
//
// when all have joined, with the host of each rank or "-", and then takes orders, one on
// a line, which all ranks carry out. It answers each with one line:
//
//	time COLLECTIVE SIZE ROOT WARM COUNT AHEAD    ok LATE TOOK...
//	count COLLECTIVE SIZE ROOT                    ok FROM:TO:MESSAGES:BYTES...
//
// or with "no" and a reason, if the collective is not there or refuses its arguments.
// SIZE is what bound.Of takes, in bytes.
//
// To time it, the call is repeated COUNT times after WARM times that are not measured.
// TOOK is the ns from the beginning of a repetition to the end of its slowest rank.
// With AHEAD above 0 a repetition begins at a time on the machine's monotonic clock,
// which all its processes share, that rank 0 tells the others AHEAD ns before it comes
// (more, and again, if one is told too late), and LATE is how late the last rank began, in
// the middle repetition; that is part of TOOK. With AHEAD 0 it begins for each rank when it
// leaves a barrier, and LATE is 0.
//
// To count, the call is made once with arguments whose result is checked, and twice more
// between looks at what each rank has sent to each other, of which the lesser counts;
// only ours can do it.
const (
	orderTime  = "time"
	orderCount = "count"
)

const (
	maxBytes = 1 << 31 // of a rank's buffer
	maxCount = 1 << 16 // repetitions
)

// An order is one taken apart.
type order struct {
	what, collective        string
	size, root, warm, count int
	ahead                   float64 // ns
}

func parseOrder(line string) (o order, err error) {
	words := strings.Fields(line)
	numbers := map[string]int{orderTime: 5, orderCount: 2}
	if len(words) < 2 || numbers[words[0]] == 0 || len(words) != 2+numbers[words[0]] {
		return o, errors.New("want time COLLECTIVE SIZE ROOT WARM COUNT AHEAD or count COLLECTIVE SIZE ROOT")
	}
	o.what, o.collective = words[0], words[1]
	var ahead int
	for i, to := range []*int{&o.size, &o.root, &o.warm, &o.count, &ahead}[:len(words)-2] {
		if *to, err = strconv.Atoi(words[2+i]); err != nil || *to < 0 {
			return o, fmt.Errorf("%q: want a number of 0 or more", words[2+i])
		}
	}
	o.ahead = float64(ahead)
	if o.size > maxBytes || o.what == orderTime && (o.count < 1 || o.count > maxCount || o.warm > maxCount) {
		return o, fmt.Errorf("want up to %d bytes, and 1 to %d repetitions", maxBytes, maxCount)
	}
	return o, nil
}

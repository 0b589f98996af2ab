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
// when all ranks have joined, with the host of each rank or "-". It then reads orders, one per
// line, which all ranks carry out, and answers each with one line:
//
//	time COLLECTIVE SIZE ROOT WARM COUNT AHEAD    ok LATE TOOK...
//	count COLLECTIVE SIZE ROOT                    ok FROM:TO:MESSAGES:BYTES...
//	calls COLLECTIVE SIZE ROOT COUNT              ok
//
// or with "no" and a reason, if the collective does not exist or refuses its arguments.
// SIZE is in bytes, as for bound.Of.
//
// A timing order repeats the call COUNT times, after WARM repetitions that are not measured.
// TOOK is the time in ns from the beginning of a repetition to the end of its slowest rank.
// With AHEAD above 0 a repetition begins at a time on the machine's monotonic clock, which
// all processes share. Rank 0 announces it AHEAD ns before (earlier, in another attempt, if
// the announcement reaches a rank too late). LATE is by how much the last rank began late,
// as the median of the repetitions; it is part of TOOK. With AHEAD 0 each rank begins when
// it leaves a barrier, and LATE is 0.
//
// A counting order makes the call once and checks the result, and then twice more between
// readings of each rank's traffic to every other rank. The smaller difference is reported.
// Only our implementation supports it.
//
// An order of calls makes COUNT barriers, and the call before each of them, for those who count
// packets. With the collective noCall it makes the barriers alone. Only our implementation
// supports it.
const (
	orderTime  = "time"
	orderCount = "count"
	orderCalls = "calls"
	noCall     = "none"
)

const (
	maxBytes = 1 << 31 // of a rank's buffer
	maxCount = 1 << 16 // repetitions
)

// An order is a parsed line.
type order struct {
	what, collective        string
	size, root, warm, count int
	ahead                   float64 // ns
}

func parseOrder(line string) (o order, err error) {
	words := strings.Fields(line)
	var ahead int
	numbers := map[string][]*int{
		orderTime:  {&o.size, &o.root, &o.warm, &o.count, &ahead},
		orderCount: {&o.size, &o.root},
		orderCalls: {&o.size, &o.root, &o.count},
	}
	if len(words) < 2 || numbers[words[0]] == nil || len(words) != 2+len(numbers[words[0]]) {
		return o, errors.New("want time COLLECTIVE SIZE ROOT WARM COUNT AHEAD, count COLLECTIVE SIZE ROOT, or calls COLLECTIVE SIZE ROOT COUNT")
	}
	o.what, o.collective = words[0], words[1]
	for i, to := range numbers[o.what] {
		if *to, err = strconv.Atoi(words[2+i]); err != nil || *to < 0 {
			return o, fmt.Errorf("%q: want a number of 0 or more", words[2+i])
		}
	}
	o.ahead = float64(ahead)
	if o.size > maxBytes || o.what != orderCount && (o.count < 1 || o.count > maxCount || o.warm > maxCount) {
		return o, fmt.Errorf("want up to %d bytes, and 1 to %d repetitions", maxBytes, maxCount)
	}
	return o, nil
}

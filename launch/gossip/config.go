package gossip

import (
	"fmt"
	"math/bits"
	"time"
)

// Pattern is the order in which a host sends to others.
type Pattern int

// The patterns.
const (
	Double Pattern = iota // 2^s forwards, then 2^s backwards (DBRR)
	Single                // 2^s forwards (BRR)
)

func (p Pattern) String() string {
	if p == Single {
		return "single"
	}
	return "double"
}

// MaxMembers bounds the hosts that a detector knows.
const MaxMembers = 4096

// Config holds the parameters that all hosts of a job share. A zero field has its default.
type Config struct {
	Period  time.Duration // between a host's messages; 500 ms
	Hang    time.Duration // how long a host or a path may be silent without counting as dead; 5 s
	Ping    time.Duration // how long a suspect has to answer; 1 s. Part of Bound.
	Start   time.Duration // how much longer a host may be silent that was never heard of since it was added; 15 s
	Pattern Pattern
}

func (c Config) withDefaults() (Config, error) {
	for _, d := range []struct {
		value *time.Duration
		is    time.Duration
	}{{&c.Period, 500 * time.Millisecond}, {&c.Hang, 5 * time.Second}, {&c.Ping, time.Second}, {&c.Start, 15 * time.Second}} {
		if *d.value == 0 {
			*d.value = d.is
		}
	}
	if c.Period < time.Millisecond || c.Hang < 0 || c.Ping < 0 || c.Ping > c.Hang || c.Start < 0 {
		return c, fmt.Errorf("gossip: period %v, hang %v, ping %v, start %v; want a period of 1ms or more, a ping no longer than the hang, and nothing below 0", c.Period, c.Hang, c.Ping, c.Start)
	}
	if c.Pattern != Single && c.Pattern != Double {
		return c, fmt.Errorf("gossip: pattern %d; want Single or Double", c.Pattern)
	}
	return c, nil
}

// Bound returns how old the last heartbeat of one of n hosts must be for the host to be declared
// failed. All survivors know of a death after that time plus the messages' time on the wire. A host that was never heard of
// has Start more: when a job starts, all its hosts make links to each other at once.
func (c Config) Bound(n int) time.Duration {
	c, _ = c.withDefaults()
	periods := 3
	if c.Pattern == Single {
		periods = 2
	}
	return time.Duration(periods*steps(n))*c.Period + c.Hang
}

// suspectAfter returns Bound without the time for an answer.
func (c Config) suspectAfter(n int) time.Duration { return c.Bound(n) - c.Ping }

// steps returns how many periods news takes to reach n hosts: the logarithm of n to base 2, rounded
// up.
func steps(n int) int { return bits.Len(uint(max(n, 2) - 1)) }

// target returns the distance, on a ring of n >= 2 hosts, to the target of a round's message.
func (c Config) target(round uint64, n int) int {
	l := uint64(steps(n))
	if c.Pattern == Single {
		return 1 << (round % l)
	}
	if s := round % (2 * l); s < l {
		return 1 << s
	} else {
		return n - 1<<(s-l)
	}
}

package register

import (
	"encoding/binary"
	"errors"
	"math"
)

// Append appends the encoding: the number of tasks that are not as [New] has them, then of each,
// in order, the task and its state, all as unsigned varints. For a job without losses it is one
// byte. Equal registers have equal encodings.
func (r Register) Append(b []byte) []byte {
	differ := 0
	for i, s := range r.states {
		if s != running(uint32(i)) {
			differ++
		}
	}
	b = binary.AppendUvarint(b, uint64(differ))
	for i, s := range r.states {
		if s != running(uint32(i)) {
			b = binary.AppendUvarint(b, uint64(i))
			b = binary.AppendUvarint(b, uint64(s))
		}
	}
	return b
}

var (
	errShort = errors.New("register: truncated")
	errOrder = errors.New("register: tasks that are not in order, or not of this job")
	errState = errors.New("register: a state that is older than the start, or no process number")
	errTwice = errors.New("register: two tasks in one process")
	errLong  = errors.New("register: a number that is not in its shortest form")
)

// Parse reads a register of so many tasks, and returns what follows it in b. What it accepts it
// would encode in the same way.
func Parse(b []byte, tasks int) (r Register, after []byte, err error) {
	differ, b, err := uvarint(b)
	if err != nil {
		return Register{}, nil, err
	}
	if differ > uint64(tasks) {
		return Register{}, nil, errOrder
	}
	r = New(tasks)
	next := uint64(0) // the lowest task that may follow
	for range differ {
		var task, s uint64
		if task, b, err = uvarint(b); err != nil {
			return Register{}, nil, err
		}
		if s, b, err = uvarint(b); err != nil {
			return Register{}, nil, err
		}
		switch {
		case task < next || task >= uint64(tasks):
			return Register{}, nil, errOrder
		case s <= uint64(running(uint32(task))) || s > uint64(running(math.MaxUint32)|1):
			return Register{}, nil, errState
		}
		r.states[task], next = state(s), task+1
	}
	return r, b, r.check()
}

// check returns an error if two tasks have the same process.
func (r Register) check() error {
	used := make(map[uint32]bool, len(r.states))
	for _, s := range r.states {
		if used[s.number()] {
			return errTwice
		}
		used[s.number()] = true
	}
	return nil
}

// uvarint reads a number in its shortest form.
func uvarint(b []byte) (v uint64, after []byte, err error) {
	v, n := binary.Uvarint(b)
	switch {
	case n <= 0:
		return 0, nil, errShort
	case n > 1 && b[n-1] == 0:
		return 0, nil, errLong
	}
	return v, b[n:], nil
}

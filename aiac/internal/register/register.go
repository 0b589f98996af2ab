// Package register says which process runs each task of a job whose lost processes are replaced.
//
// A task begins in the process of its own number. When that is lost, the submitter starts another
// one, with a number that no process had before, so the numbers of a task only rise. A [Register]
// has the newest that is known of every task, and two are merged by the maximum, task by task:
// that is a state-based CRDT (Shapiro et al., RR-7506), so whoever has received the same reports, in
// whatever order and however often, has the same register, without an election.
//
// Whether a process was lost is part of the state: the death of a process is newer than its start,
// and the start of its successor is newer than both.
//
// The package knows neither who detects deaths nor who starts processes, and keeps no state.
package register

import (
	"fmt"
	"slices"
)

// MaxTasks bounds the tasks of a register.
const MaxTasks = 1 << 20

// A Register is what is known of the processes of all tasks. It does not change: its methods return
// other registers, which may share memory with it. It is safe for concurrent use.
type Register struct {
	states []state // by task
}

// A state is what is known of one task: twice the process number, plus 1 if that process was lost.
// The larger is the newer.
type state uint64

func running(number uint32) state { return state(number) << 1 }

func (s state) number() uint32 { return uint32(s >> 1) }
func (s state) isLost() bool   { return s&1 != 0 }

// New returns the register of a job that begins: task i is in process i. It panics unless there are
// 1 to [MaxTasks] tasks.
func New(tasks int) Register {
	if tasks < 1 || tasks > MaxTasks {
		panic(fmt.Sprintf("register: %d tasks: want 1 to %d", tasks, MaxTasks))
	}
	r := Register{make([]state, tasks)}
	for i := range r.states {
		r.states[i] = running(uint32(i))
	}
	return r
}

// Tasks returns the number of tasks.
func (r Register) Tasks() int { return len(r.states) }

// Process returns the number of the newest process of a task, and whether it is lost.
func (r Register) Process(task int) (number uint32, isLost bool) {
	s := r.states[task]
	return s.number(), s.isLost()
}

// Task returns the task of which number is the newest process, or false if there is none.
func (r Register) Task(number uint32) (task int, ok bool) {
	task = slices.IndexFunc(r.states, func(s state) bool { return s.number() == number })
	return task, task >= 0
}

// IsComplete reports whether no task is without a process.
func (r Register) IsComplete() bool { return !slices.ContainsFunc(r.states, state.isLost) }

// Lost returns the register after the death of the process number, which ran a task. If the task
// was replaced already it is the same register.
func (r Register) Lost(task int, number uint32) Register { return r.with(task, running(number)|1) }

// Replaced returns the register after the process number was started for a task. The number of a
// task's process never falls: a lower one, which is a late report, changes nothing. Only the
// submitter chooses numbers, and gives each to one task.
func (r Register) Replaced(task int, number uint32) Register { return r.with(task, running(number)) }

// with returns the register with at least this state of a task.
func (r Register) with(task int, s state) Register {
	if r.states[task] >= s {
		return r
	}
	states := slices.Clone(r.states)
	states[task] = s
	return Register{states}
}

// Equal reports whether both say the same of every task.
func (r Register) Equal(o Register) bool {
	same := len(r.states) == len(o.states)
	return same && (len(r.states) == 0 || &r.states[0] == &o.states[0] || slices.Equal(r.states, o.states))
}

// Merge returns the newest of every task in either. It panics if they have different numbers of
// tasks, so they are of different jobs.
func (r Register) Merge(o Register) Register {
	if len(r.states) != len(o.states) {
		panic(fmt.Sprintf("register: merge of registers of %d and %d tasks", len(r.states), len(o.states)))
	}
	if r.Equal(o) {
		return r
	}
	merged := Register{slices.Clone(r.states)}
	for i, s := range o.states {
		merged.states[i] = max(merged.states[i], s)
	}
	return merged
}

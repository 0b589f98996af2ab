package replica

// joining is what a process with a spare number does until it has a seat.
type joining struct {
	begun    bool         // the program has come to its first milestone
	layout   Layout       // the latest that it has heard of
	joined   map[int]bool // processes that were sent Join
	welcomed map[int]bool // and have answered
	ready    map[int]bool // processes that were sent Ready; nil: none
	round    uint64       // the milestone of data
	data     []byte
	toLoad   bool   // data is to be loaded
	unsaved  bool   // there is none, and will be none
	loading  uint64 // the milestone whose state the program loads, or has loaded
	early    []earlyMessage
}

// begin is called when the program has come to its first milestone.
func (j *joining) begin(p *Process) {
	j.begun = true
	j.progress(p)
}

// holders calls f with the processes that have seats, as far as is known here, and have not failed.
func (j *joining) holders(p *Process, f func(q int)) {
	for seat := range j.layout.Seats() {
		if q := j.layout.holder(seat); q != p.cfg.Process && !p.failed[q] {
			f(q)
		}
	}
}

// progress tells those that have seats of this process, and that it is ready once all have answered.
func (j *joining) progress(p *Process) {
	if !j.begun {
		return
	}
	all, known := true, len(j.welcomed) > 0
	j.holders(p, func(q int) {
		if !j.joined[q] {
			j.joined[q] = true
			p.sendControl(q, Message{Kind: Join, Seat: p.cfg.Seat})
		}
		all = all && j.welcomed[q]
	})
	if !all || !known {
		return
	}
	if j.ready == nil {
		j.ready = map[int]bool{}
	}
	j.holders(p, func(q int) {
		if !j.ready[q] {
			j.ready[q] = true
			p.sendControl(q, Message{Kind: Ready})
		}
	})
}

// isInVain reports whether all that could admit this process have ended.
func (j *joining) isInVain(p *Process) bool {
	inVain := true
	j.holders(p, func(int) { inVain = false })
	return inVain
}

// learn takes note of a layout.
func (j *joining) learn(p *Process, m Message) {
	if m.Epoch > j.layout.Epoch {
		j.layout = p.cfg.with(m.Epoch, m.Moves)
	}
}

// receive takes a message of another process. What is not for newcomers is of the layout in which this one has a seat.
func (j *joining) receive(p *Process, from int, m Message) error {
	switch m.Kind {
	case Welcome:
		j.learn(p, m)
		j.welcomed[from] = true
		j.progress(p)
	case State:
		j.learn(p, m)
		if m.Count > j.round {
			j.round, j.data, j.toLoad = m.Count, m.Data, m.OK
			if !m.OK {
				j.unsaved, j.loading = true, m.Count
				j.loaded(p, false)
			}
			p.emit(Effect{Kind: Wake})
		}
	case Admit:
		return j.admitted(p, m)
	case Join, Ready, Loaded:
	default:
		j.early = append(j.early, earlyMessage{from, m})
	}
	return nil
}

// admitted begins in a layout in which this process has a seat.
func (j *joining) admitted(p *Process, m Message) error {
	l := p.cfg.with(m.Epoch, m.Moves)
	if l.seatOf(p.cfg.Process) != l.seat(p.rank, p.replica) || m.Count != j.loading {
		return errNotLoaded(p, m)
	}
	p.rounds.count, p.rounds.target = m.Count, m.Count
	p.rounds.early, j.early = j.early, nil
	p.rounds.enter(p, l, m.Failed)
	return nil
}

// loaded tells all whether the program has loaded what another one saved.
func (j *joining) loaded(p *Process, ok bool) {
	j.holders(p, func(q int) { p.sendControl(q, Message{Kind: Loaded, Count: j.loading, OK: ok}) })
}

// take returns what is to be loaded.
func (j *joining) take() []byte {
	data := j.data
	j.data, j.toLoad, j.loading = nil, false, j.round
	return data
}

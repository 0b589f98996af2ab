package engine

// Begin makes r a request for work that its owner does, so that it can be waited for
// among others: it is complete when Finish is called, which must happen in the end.
// giveUp is called, once and with the engine's lock held, when a waiter abandons it:
// the owner is to finish soon then.
func (e *Engine) Begin(r *Request, giveUp func(why error)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	r.beginTask(e, giveUp)
}

// BeginTask is Begin for a Handle.
func (e *Engine) BeginTask(h *Handle, giveUp func(why error)) {
	h.e = e
	e.mu.Lock()
	defer e.mu.Unlock()
	r := e.newRequest()
	r.beginTask(e, giveUp)
	h.begin(r)
}

func (r *Request) beginTask(e *Engine, giveUp func(why error)) {
	r.begin(e, nil, 0, e.cfg.Rank, 0, nil)
	r.State, r.IsSend, r.task = moving, true, giveUp
}

// Finish completes a Handle that BeginTask began.
func (h *Handle) Finish(err error) { h.withRequest(func(r *Request) { r.finish(err) }) }

// Finish completes a request of Begin.
func (r *Request) Finish(err error) {
	r.e.mu.Lock()
	defer r.e.mu.Unlock()
	r.finish(err)
}

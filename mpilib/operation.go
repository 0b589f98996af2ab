package mpilib

import (
	"context"
	"errors"
	"strings"

	"github.com/isthmus-grid/isthmus/mpilib/internal/calls"
)

// blocking makes a collective call and waits for it.
func blocking(ctx context.Context, c *Comm, o *calls.Operation) error {
	return c.called(o.Name, o.Call(ctx, &c.core))
}

// nonblocking starts a collective call.
func nonblocking(c *Comm, o *calls.Operation) *Request {
	what := transfer{comm: c, call: "I" + strings.ToLower(o.Name[:1]) + o.Name[1:]}
	r, err := o.Begin(&c.core)
	if err != nil {
		return failedRequest(what, err)
	}
	q := newRequest(what)
	o.Detach(r, (*watchedRequest)(q))
	return q
}

// persistent prepares a collective call.
func persistent(c *Comm, o *calls.Operation) *Persistent {
	what := transfer{comm: c, call: o.Name + "Init"}
	repeated, err := o.Repeat(&c.core)
	return &Persistent{what: what, again: func() *Request {
		if err != nil {
			return failedRequest(what, err)
		}
		r, err := repeated.Next()
		if err != nil {
			return failedRequest(what, err)
		}
		q := newRequest(what)
		repeated.Detach(r, (*watchedRequest)(q))
		return q
	}}
}

// failed returns the error of a request that is complete.
func (r *Request) failed() error {
	if r.unstarted {
		return r.err
	}
	_, err := r.core.Result()
	return err
}

// errNoCancel is the error for cancelling anything but one send or receive.
var errNoCancel = errors.New("only a send or a receive can be cancelled; wait for it, or Wait with a context that is done to give it up")

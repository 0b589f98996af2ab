package uplink

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Publish publishes a name at every broker that has a session, one after the other in the order of
// the settings: if two sites publish the name at the same time, the first broker that both reach
// decides. If one broker refuses, the name is unpublished at those before it.
func (u *Set) Publish(ctx context.Context, p overlay.Publication) error {
	var published []*control.Session
	var away error
	for _, s := range u.Sessions() {
		verdicts, err := u.PublishAt(ctx, s, []overlay.Publication{p})
		if err != nil && (IsAway(err) || errors.Is(err, overlay.ErrTimeout)) {
			away = err // its next session publishes all
			continue
		}
		if err == nil {
			err = verdicts[0]
		}
		if err != nil {
			for _, s := range published {
				u.unpublishAt(ctx, s, p)
			}
			return err
		}
		published = append(published, s)
	}
	if len(published) == 0 && away == nil {
		away = u.Away() // they have ended in the meantime
	}
	if len(published) > 0 {
		away = nil
	}
	return away
}

// PublishAt publishes names at one broker, with a result for each.
func (u *Set) PublishAt(ctx context.Context, s *control.Session, list []overlay.Publication) ([]error, error) {
	req := &controlpb.PublishRequest{}
	for _, p := range list {
		req.Names = append(req.Names, control.PublicationToPB(p))
	}
	var verdicts []error
	for rest := req.Names; len(rest) > 0; rest = rest[len(req.Names):] {
		req.Names = rest[:fitting(rest)]
		some, err := u.publishAt(ctx, s, req)
		if err != nil {
			return nil, err
		}
		verdicts = append(verdicts, some...)
	}
	return verdicts, nil
}

// publishAt is PublishAt by one call.
func (u *Set) publishAt(ctx context.Context, s *control.Session, req *controlpb.PublishRequest) ([]error, error) {
	call, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	resp, err := controlpb.NewDirectoryClient(s.Conn()).Publish(call, req)
	if err != nil {
		return nil, u.CallError(s, err)
	}
	verdicts, err := control.VerdictErrs(resp.Faults, len(req.Names))
	if err != nil {
		return nil, fmt.Errorf("%s: the broker's answer: %w", u.who, err)
	}
	return verdicts, nil
}

// Unpublish removes a name at every broker that has a session.
func (u *Set) Unpublish(ctx context.Context, p overlay.Publication) error {
	return u.OnEach(func(s *control.Session) error { return u.unpublishAt(ctx, s, p) })
}

func (u *Set) unpublishAt(ctx context.Context, s *control.Session, p overlay.Publication) error {
	call, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	resp, err := controlpb.NewDirectoryClient(s.Conn()).Unpublish(call, &controlpb.UnpublishRequest{Names: []*controlpb.Publication{control.PublicationToPB(p)}})
	if err != nil {
		if err = u.CallError(s, err); IsAway(err) {
			return nil
		}
		return err
	}
	verdicts, err := control.VerdictErrs(resp.Faults, 1)
	if err != nil {
		return fmt.Errorf("%s: the broker's answer: %w", u.who, err)
	}
	return verdicts[0]
}

// LookupName makes one call to the current broker, which waits for the name for the given time,
// within bounds.
func (u *Set) LookupName(ctx context.Context, name string, wait time.Duration) (*controlpb.LookupNameResponse, error) {
	s, err := u.Get(ctx)
	if err != nil {
		return nil, err
	}
	wait = max(min(wait, AwaitChunk), 0)
	call, cancel := context.WithTimeout(ctx, wait+CallTimeout)
	defer cancel()
	resp, err := controlpb.NewDirectoryClient(s.Conn()).LookupName(call, &controlpb.LookupNameRequest{Name: name, WaitMs: uint32(wait.Milliseconds())})
	if err != nil {
		return nil, u.CallError(s, err)
	}
	return resp, nil
}

package broker

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/internal/account/audit"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/pki/enrol"
	"github.com/isthmus-grid/isthmus/internal/pki/oidc"
	"github.com/isthmus-grid/isthmus/overlay"
)

// openEnrolment opens the server that issues certificates, if it is configured. Call it before
// Serve.
func (b *Broker) openEnrolment() (err error) {
	if !b.cfg.Enrol.enabled() {
		return nil
	}
	if !b.store.enabled() {
		return errors.New("enrol: used tokens must last, and there is nowhere to keep them; set store to a file, or start the broker with a state folder (STATE_DIRECTORY)")
	}
	b.enrolment, err = enrol.New(enrol.Settings{
		Cert: string(b.cfg.Enrol.Cert), Key: string(b.cfg.Enrol.Key), Store: b.store,
		Longest: b.cfg.Enrol.Longest,
	}, b.creds, b.log)
	if err != nil {
		return fmt.Errorf("enrol: %w", err)
	}
	b.enrolment.SetMax(b.cfg.Limits.Enrolments, b.cfg.Limits.EnrolmentsPerSource)
	b.store.enrolment = b.enrolment
	b.enrolment.Noted = b.auditEnrolment
	if err := b.openOutside(b.cfg.Enrol.OIDC); err != nil {
		return fmt.Errorf("enrol.oidc: %w", err)
	}
	b.endpoint.SetTrust(control.Trust{Renew: b.renew, Enrol: func(ctx context.Context, conn *tls.Conn, asked func() bool) {
		b.enrolment.Serve(ctx, conn, asked, b.endpoint.RefuseEnrol)
	}})
	return nil
}

// openOutside makes the enrolment server trust the configured identity provider.
func (b *Broker) openOutside(o OIDC) error {
	if !o.enabled() {
		return nil
	}
	var roots *x509.CertPool // nil: the system's roots
	if o.CA != "" {
		var err error
		if roots, err = poolOf(o.CA); err != nil {
			return err
		}
	}
	v, err := oidc.New(o.rules(), o.Keys, roots)
	if err != nil {
		return err
	}
	b.enrolment.SetOutside(enrol.Outside{Verifier: v, Valid: o.Valid, Once: o.Once})
	b.log.Info("an identity provider is believed", "issuer", o.Issuer, "audience", o.Audience, "profile", o.Profile)
	return nil
}

// renew issues a new certificate to a session's peer, or to a helper of its site.
func (b *Broker) renew(_ context.Context, s *control.Session, chain [][]byte) ([][]byte, error) {
	p, err := b.creds.Verify(chain)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", overlay.ErrForbidden, err)
	}
	peer := s.Peer()
	if own := p.Identity == peer; !own && (peer.Role != control.RoleFrontal || p.Role != control.RoleHelper || p.Site != peer.Site) {
		return nil, fmt.Errorf("%w: %v asks for a certificate of %v", overlay.ErrForbidden, peer, p.Identity)
	}
	fresh, err := b.renewed(chain)
	b.auditEnrolment(p.Identity.String(), "certificate", "session of "+peer.String(), err)
	return fresh, err
}

// renewOwn renews this broker's own certificate.
func (b *Broker) renewOwn(_ context.Context, chain [][]byte) ([][]byte, error) {
	return b.renewed(chain)
}

func (b *Broker) renewed(chain [][]byte) ([][]byte, error) {
	if b.enrolment == nil {
		return nil, fmt.Errorf("%w: broker %s does not enrol; issue a new certificate (isthmus ca issue), which is taken over from its file", overlay.ErrRefused, b.name)
	}
	return b.enrolment.Renew(chain)
}

// Revoke implements controlpb.AdminServer.
func (a admin) Revoke(ctx context.Context, req *controlpb.RevocationList) (*controlpb.RevokeResponse, error) {
	s, _, err := a.b.caller(ctx, control.RoleAdmin)
	if err != nil {
		return nil, a.b.fail(err)
	}
	lists := a.b.creds.Revocations()
	newer, err := lists.Take(req.GetDer())
	if err != nil {
		a.b.log.Error("revocation list", "by", s.Peer().String(), "error", err)
		return nil, a.b.fail(err)
	}
	_, number := lists.DER()
	if newer {
		a.b.audit.Append(audit.Record{Event: audit.Revoke, Peer: s.Peer().String(), Reason: fmt.Sprintf("revocation list %d was handed over", number)})
	}
	a.b.log.Info("revocation list handed over", "by", s.Peer().String(), "number", number, "newer", newer)
	return &controlpb.RevokeResponse{Number: number, Newer: newer, Kept: lists.Kept()}, nil
}

// cutBound is how long a frontal or proxy may take to end links.
const cutBound = 4 * time.Second

// followRevocations ends the links of identities newly on the revocation list, until ctx ends. The
// sessions of the revoked end by themselves.
func (b *Broker) followRevocations(ctx context.Context) {
	before, _ := b.creds.Revocations().Now()
	for {
		list, changed := b.creds.Revocations().Now()
		if ids := list.Since(before); len(ids) > 0 {
			b.grants.forget() // otherwise a cut-off process could register again by a cached grant
			b.cut(ctx, ids)
		}
		before = list
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// cut ends the links of all processes that run at a revoked site or node, or for a revoked
// principal.
func (b *Broker) cut(ctx context.Context, ids []string) {
	gone := make(map[string]bool, len(ids))
	for _, id := range ids {
		gone[id] = true
	}
	points := b.registry.Points(func(p overlay.AccessPoint) bool {
		allocation, _ := overlay.AllocationOf(p.Node.Name)
		return gone[control.Identity{Role: control.RoleHelper, Site: p.Node.Site, Name: allocation}.Key()] || gone[control.Identity{Role: control.RoleHelper, Site: p.Node.Site, Name: p.Node.Name}.Key()] ||
			gone[control.Identity{Role: control.RoleFrontal, Site: p.Node.Site}.Key()] ||
			gone[control.Identity{Role: control.RoleUser, Name: p.Principal.User}.Key()]
	})
	var names []overlay.ProcessName
	for _, p := range points {
		names = append(names, p.Process)
		if site, err := b.registry.Site(p.Node.Site); err == nil {
			b.registry.Died(site.Holder, p.Process, p.Generation)
			b.names.ended(p.Node.Site, p.Process, p.Generation)
		}
	}
	reason := strings.Join(ids, ", ") + ": revoked"
	for _, id := range ids {
		b.audit.Append(audit.Record{Event: audit.Revoke, Reason: id + " is revoked"})
	}
	b.log.Warn("revoked", "identities", strings.Join(ids, ", "), "processes", len(names))
	if len(names) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, cutBound)
	defer cancel()
	var all sync.WaitGroup
	defer all.Wait()
	for _, s := range append(b.sessions.all(control.RoleProxy), b.sessions.all(control.RoleFrontal)...) {
		all.Go(func() {
			links, err := s.Cut(ctx, names, reason)
			if err != nil {
				b.log.Warn("links of the revoked not ended", "by", s.Peer().String(), "error", err)
				return
			}
			b.log.Info("links of the revoked ended", "by", s.Peer().String(), "links", links)
		})
	}
}

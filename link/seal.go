package link

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/isthmus-grid/isthmus/link/sealed"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// A carrier is encrypted if either end wants it. TLS runs between the hellos and the proofs and
// costs no round trip of its own:
//
//	dialler                                   dialled
//	Hello, ClientHello        ------->
//	                          <-------        Hello
//	                          <-------        ServerHello ... Finished, [Proof]
//	... Finished, [Proof], [data]  -->
//
// What is in brackets is encrypted. A dialler that does not want encryption itself learns from the
// peer's hello that it must begin TLS, half a round trip later.
//
// The certificates tell each end the other's rank and generation. The proofs, which travel inside,
// cover both hellos: this binds TLS to this link and this carrier (their ids and nonces are in the
// hellos), and detects an attacker on the way that clears a flag to force plain text. TLS sessions
// are not resumed: each carrier has keys of its own.

// When the handshake's context ends, the connection gets a deadline in the past (see runHandshake).
// TLS does not get the context: it would close the connection at the same time, and its error would
// hide the cause.

// meetSealed exchanges hellos with the peer, and begins TLS if either end wants it.
func (h *handshake) meetSealed(ctx context.Context) error {
	if h.ours.Seal() { // regardless of the peer's choice, so it need not wait for the hello
		return h.sealAsClient(ctx, h.meet)
	}
	if err := h.meet(); err != nil || !h.theirs.Seal() {
		return err
	}
	return h.sealAsClient(ctx, nil)
}

// sealAsClient encrypts the carrier as the dialler. between is called after the ClientHello has
// been sent.
func (h *handshake) sealAsClient(ctx context.Context, between func() error) error {
	creds, err := h.credentials()
	if err != nil {
		return err
	}
	around := sealed.Around{Stray: h.unexpectedFrame}
	if between != nil {
		around.Between = func() error { return h.telling(between()) }
	}
	return h.sealed(sealed.Client(context.WithoutCancel(ctx), h.conn, creds, h.peer, around))
}

// sealAsServer encrypts the carrier as the dialled end. The proof travels with TLS's first flight;
// it discloses nothing secret. If refused is not nil, a refusal travels in its place and is
// returned: the dialler can then tell that the refusal is the peer's.
func (h *handshake) sealAsServer(ctx context.Context, p *wire.Proof, refused error) error {
	early := wire.Frame(p)
	var found *refusal
	if errors.As(refused, &found) {
		early = h.refuse(found)
	}
	creds, err := h.credentials()
	if err != nil {
		return err
	}
	peer := overlay.ProcessName{Job: h.theirs.Job, Rank: h.theirs.From}
	err = h.sealed(sealed.Server(context.WithoutCancel(ctx), h.conn, creds, &peer, wire.Append(nil, early), sealed.Around{Stray: h.unexpectedFrame}))
	if refused != nil {
		h.refusalSent = true
		return refused
	}
	return err
}

func (h *handshake) credentials() (sealed.Credentials, error) {
	if h.self.Credentials == nil {
		return nil, fmt.Errorf("the carrier must be encrypted, but %v has no certificate", h.self.Process)
	}
	return h.self.Credentials()
}

// sealed continues with an encrypted carrier.
func (h *handshake) sealed(c *sealed.Conn, err error) error {
	if err != nil {
		return err
	}
	h.conn, h.cipher = c, c.CipherSuite()
	if life := c.Peer().Generation; life != h.theirs.Generation {
		return refuse(overlay.ErrForbidden, "its certificate is that of life %d of the rank, its hello says %d", life, h.theirs.Generation)
	}
	return nil
}

// unexpectedFrame handles data that is not TLS where TLS should begin or continue: a refusal, or
// the proof of a peer that was made to believe that the carrier is in plain text.
func (h *handshake) unexpectedFrame(head []byte) error {
	if _, err := wire.ParseHeader(append(bytes.Clone(head), 0)); errors.Is(err, wire.ErrMagic) {
		return nil // the caller reports this itself
	}
	_, err := receive[*wire.Refuse](io.MultiReader(bytes.NewReader(head), h.conn), "TLS")
	if errors.Is(err, wire.ErrType) {
		err = refuse(overlay.ErrForbidden, "it continues in plain text although the carrier must be encrypted: a hello was modified on the path")
	}
	return h.telling(err)
}

// choice is the cipher chosen between this site and another.
type choice struct {
	site   overlay.SiteID
	cipher string // empty: plain
}

// logChoice logs the cipher chosen for a carrier, once for each other site and cipher.
func (m *Mesh) logChoice(c overlay.Carrier) {
	what := choice{c.Path.Peer.Site, c.Path.Cipher}
	if m.cfg.Log == nil || c.Path.Technique == 0 {
		return
	}
	m.mu.Lock()
	known := m.logged[what]
	m.logged[what] = true
	m.mu.Unlock()
	if !known {
		m.cfg.Log.Info("encryption", "site", c.Here.Site, "peer_site", what.site, "encrypted", what.cipher != "", "cipher", what.cipher)
	}
}

// telling sends err to the peer at once if it is a refusal: after an error in the middle of TLS
// nothing can be sent any more.
func (h *handshake) telling(err error) error {
	var found *refusal
	if errors.As(err, &found) {
		h.sendRefusal(found)
	}
	return err
}

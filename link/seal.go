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

// A carrier that either end wants encrypted. TLS runs between the hellos and the
// proofs and costs no round trip of its own:
//
//	dialler                                   dialled
//	Hello, ClientHello        ------->
//	                          <-------        Hello
//	                          <-------        ServerHello ... Finished, [Proof]
//	... Finished, [Proof], [data]  -->
//
// What is in brackets is encrypted. A dialler that does not want it itself
// learns from the peer's hello that it is to begin TLS, half a round trip later.
//
// Certificates tell each end which rank of the job the other is, in which life.
// The proofs, which travel inside, cover both hellos: so TLS is bound to this
// link and this carrier (their ids and nonces are in the hellos), and whoever
// clears a flag on the way in order to have plain text is found out. TLS
// sessions are not resumed: each carrier has keys of its own.

// The end of the handshake's context is a deadline of the connection's in the
// past (see shake). TLS is not told of it: it would close the connection at the
// same instant, and the error would be about that.

// meetSealed meets the peer, and begins TLS if either end wants it.
func (h *handshake) meetSealed(ctx context.Context) error {
	if h.ours.Seal() { // whatever the peer wants: need not wait for its hello
		return h.sealAsClient(ctx, h.meet)
	}
	if err := h.meet(); err != nil || !h.theirs.Seal() {
		return err
	}
	return h.sealAsClient(ctx, nil)
}

// sealAsClient encrypts the carrier as the dialler. between is called when the
// ClientHello is out.
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

// sealAsServer encrypts the carrier as the end that was dialled. The proof
// travels with TLS's first flight; it says nothing that a stranger may not know.
// So does a refusal in its place, which is returned then: the dialler sees that
// it is the peer who refuses.
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
		h.told = true
		return refused
	}
	return err
}

func (h *handshake) credentials() (sealed.Credentials, error) {
	if h.self.Credentials == nil {
		return nil, fmt.Errorf("the carrier is to be encrypted, but %v has no certificate", h.self.Process)
	}
	return h.self.Credentials()
}

// sealed goes on with an encrypted carrier.
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

// unexpectedFrame is told when something that is not TLS comes where TLS is to begin or go
// on: a refusal, or the proof of a peer that was made to believe that nothing is
// to be encrypted.
func (h *handshake) unexpectedFrame(head []byte) error {
	if _, err := wire.ParseHeader(append(bytes.Clone(head), 0)); errors.Is(err, wire.ErrMagic) {
		return nil // it has its own words for that
	}
	_, err := receive[*wire.Refuse](io.MultiReader(bytes.NewReader(head), h.conn), "TLS")
	if errors.Is(err, wire.ErrType) {
		err = refuse(overlay.ErrForbidden, "it goes on in plain text though the carrier is to be encrypted: somebody on the way changed a hello")
	}
	return h.telling(err)
}

// choice is what was chosen between this site and another.
type choice struct {
	site   overlay.SiteID
	cipher string // empty: plain
}

// logChoice logs what was chosen for a carrier, once for each other site and choice.
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

// telling tells the peer at once if err is a refusal, since after an error in
// the midst of TLS nothing can be sent any more.
func (h *handshake) telling(err error) error {
	var found *refusal
	if errors.As(err, &found) {
		h.sendRefusal(found)
	}
	return err
}

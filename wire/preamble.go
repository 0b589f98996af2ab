package wire

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/isthmus-grid/isthmus/overlay"
)

// ID is a random 128-bit number: a connect-id, a carry-id or a link's id. Presenting it proves
// having been given it.
type ID [16]byte

// IntroKind is what the dialler of a helper's or frontal's listener requests.
type IntroKind uint8

// The kinds of introduction.
const (
	IntroProcess IntroKind = 1 // reach the process Job, Rank
	IntroReverse IntroKind = 2 // the dialler dials back; ID is the connect-id that the broker passed on
	IntroCarry   IntroKind = 3 // the dialler is a node of this site; ID is the carry-id that the frontal issued
)

// Intro is the first frame on a connection to a helper's or frontal's listener. With IntroProcess,
// Job and Rank are the target and From, Technique and Via describe the path to it; with the others,
// ID counts and the rest identifies the dialler in logs. Nothing in it is authenticated.
type Intro struct {
	Kind      IntroKind
	ID        ID
	Job       overlay.JobID
	Rank      uint32
	From      overlay.NodeID
	Technique overlay.Technique
	Via       overlay.Via
}

// Type implements Frame.
func (*Intro) Type() Type { return TypeIntro }

func (f *Intro) appendBody(b []byte) []byte {
	b = append(b, byte(f.Kind))
	b = append(b, f.ID[:]...)
	b = appendStr8(b, string(f.Job))
	b = binary.BigEndian.AppendUint32(b, f.Rank)
	b = appendNode(b, f.From)
	return append(b, byte(f.Technique), byte(f.Via))
}

func (f *Intro) decodeBody(r *reader) {
	f.Kind = IntroKind(r.u8())
	r.bytes(f.ID[:])
	f.Job = overlay.JobID(r.str8())
	f.Rank = r.u32()
	f.From = r.node()
	f.Technique = overlay.Technique(r.u8())
	f.Via = overlay.Via(r.u8())
	if r.err == nil && (f.Kind < IntroProcess || f.Kind > IntroCarry) {
		r.err = fmt.Errorf("kind %d", f.Kind)
	}
	checkJob(r, f.Job)
}

// Ticket is the first frame on a connection to a proxy. A broker issues two for a link, one for
// each end; MAC is over Signed under the key that the proxy gave the broker.
type Ticket struct {
	Link    ID
	End     uint8 // 0 the asker, 1 the target
	Job     overlay.JobID
	Asker   uint32 // rank
	Target  uint32 // rank
	Proxy   string // the only proxy that honours it
	Expires uint64 // Unix time in milliseconds, by the proxy's clock
	Limit   uint64 // bytes in both directions together; 0 is no limit

	// Principal is on whose behalf the asker works. A ticket that names one has another frame type,
	// because older proxies know only tickets without.
	Principal overlay.Principal

	// Allowances are what the policies of the ends' sites allow, which the proxy enforces; unused
	// entries are zero and come last. A ticket that has any has a third frame type.
	Allowances [overlay.MaxAllowances]overlay.Allowance

	MAC [32]byte
}

// Type implements Frame.
func (f *Ticket) Type() Type {
	if f.Allowances[0] != (overlay.Allowance{}) {
		return TypeLimitedTicket
	}
	if f.Principal.IsSet() {
		return TypeNamedTicket
	}
	return TypeTicket
}

// Signed returns the bytes that MAC covers: the protocol version, followed by the body without the
// MAC.
func (f *Ticket) Signed() []byte { return f.appendClaims([]byte{Version}) }

func (f *Ticket) appendClaims(b []byte) []byte {
	b = append(b, f.Link[:]...)
	b = append(b, f.End)
	b = appendStr8(b, string(f.Job))
	b = binary.BigEndian.AppendUint32(b, f.Asker)
	b = binary.BigEndian.AppendUint32(b, f.Target)
	b = appendStr8(b, f.Proxy)
	b = binary.BigEndian.AppendUint64(b, f.Expires)
	b = binary.BigEndian.AppendUint64(b, f.Limit)
	limited := f.Type() == TypeLimitedTicket
	if f.Principal.IsSet() || limited {
		b = appendStr8(appendStr8(b, f.Principal.User), f.Principal.Project)
	}
	if !limited {
		return b
	}
	n := len(b)
	b = append(b, 0)
	for _, a := range f.Allowances {
		if a == (overlay.Allowance{}) {
			break
		}
		b[n]++
		b = appendStr8(appendStr8(b, string(a.Site)), a.Rule)
		b = appendStr8(appendStr8(b, a.Owner), a.Contact)
		b = binary.BigEndian.AppendUint32(b, a.Links)
		b = binary.BigEndian.AppendUint64(b, a.Rate)
		b = binary.BigEndian.AppendUint64(b, a.Month)
	}
	return b
}

func (f *Ticket) appendBody(b []byte) []byte { return append(f.appendClaims(b), f.MAC[:]...) }

func (f *Ticket) decodeBody(r *reader) {
	r.bytes(f.Link[:])
	f.End = r.u8()
	f.Job = overlay.JobID(r.str8())
	f.Asker = r.u32()
	f.Target = r.u32()
	f.Proxy = r.str8()
	f.Expires = r.u64()
	f.Limit = r.u64()
	switch r.of {
	case TypeNamedTicket:
		f.Principal = r.principal()
	case TypeLimitedTicket:
		f.Principal = r.optionalPrincipal()
		f.decodeAllowances(r)
	}
	r.bytes(f.MAC[:])
	if r.err == nil && f.End > 1 {
		r.err = fmt.Errorf("end %d", f.End)
	}
	checkJob(r, f.Job)
}

func (f *Ticket) decodeAllowances(r *reader) {
	n := int(r.u8())
	if r.err == nil && (n == 0 || n > len(f.Allowances)) {
		r.err = fmt.Errorf("%d allowances, want 1 to %d", n, len(f.Allowances))
	}
	for i := 0; i < n && r.err == nil; i++ {
		a := overlay.Allowance{Site: overlay.SiteID(r.str8()), Rule: r.str8(), Owner: r.str8(), Contact: r.str8(), Links: r.u32(), Rate: r.u64(), Month: r.u64()}
		if r.err == nil {
			r.err = a.Check()
		}
		f.Allowances[i] = a
	}
}

// Refuse is sent in place of the expected answer by the process that refuses: a proxy, a frontal, a
// helper or the peer. The sender closes afterwards.
type Refuse struct {
	Code Code
	By   string // the refusing process: "proxy p1", "helper siteb/b1"
	Text string // one sentence for humans
}

// Type implements Frame.
func (*Refuse) Type() Type { return TypeRefuse }

func (f *Refuse) appendBody(b []byte) []byte {
	b = append(b, byte(f.Code))
	b = appendStr8(b, f.By)
	return appendText(b, f.Text)
}

func (f *Refuse) decodeBody(r *reader) {
	f.Code = Code(r.u8())
	f.By = r.str8()
	f.Text = r.text()
}

// Err returns the refusal as an error: "BY: TEXT", with the class of Code.
func (f *Refuse) Err() error { return f.Code.Errorf("%s: %s", f.By, f.Text) }

// Hello is the first frame from each process of a link, sent without waiting for the other's. It is
// not secret; Proof authenticates it.
type Hello struct {
	Features   uint32
	Job        overlay.JobID
	From, To   uint32 // ranks
	Generation overlay.Generation
	Site       overlay.SiteID // of the sender; empty if it does not know
	Dialled    bool           // the sender dialled this carrier
	Link       ID             // chosen by the dialler of a link's first carrier; zero from the dialled side
	Again      bool           // the carrier is a further one of an existing link
	Nonce      [32]byte
}

// Padding precedes a Hello and has no meaning. With it a hello exceeds one packet of the size that
// a path should carry, so that a handshake fails where such packets vanish. A receiver that does
// not know it skips it.
type Padding struct{ N int }

// Type implements Frame.
func (*Padding) Type() Type { return TypePadding }

func (f *Padding) appendBody(b []byte) []byte {
	return append(binary.BigEndian.AppendUint16(b, uint16(f.N)), make([]byte, f.N)...)
}

func (f *Padding) decodeBody(r *reader) {
	f.N = int(r.u16())
	r.take(f.N)
}

// FeatureSeal in a Hello's Features says that its sender wants the carrier
// encrypted.
const FeatureSeal = 1 << 0

// FeatureWindow in a Hello's Features says that its sender supports LinkHeader.Window.
const FeatureWindow = 1 << 1

// Type implements Frame.
func (*Hello) Type() Type { return TypeHello }

// Seal reports whether the sender wants the carrier encrypted.
func (f *Hello) Seal() bool { return f.Features&FeatureSeal != 0 }

func (f *Hello) appendBody(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, f.Features)
	b = appendStr8(b, string(f.Job))
	b = binary.BigEndian.AppendUint32(b, f.From)
	b = binary.BigEndian.AppendUint32(b, f.To)
	b = binary.BigEndian.AppendUint64(b, uint64(f.Generation))
	b = appendStr8(b, string(f.Site))
	b = append(b, boolByte(f.Dialled))
	b = append(b, f.Link[:]...)
	b = append(b, boolByte(f.Again))
	return append(b, f.Nonce[:]...)
}

func (f *Hello) decodeBody(r *reader) {
	f.Features = r.u32()
	f.Job = overlay.JobID(r.str8())
	f.From = r.u32()
	f.To = r.u32()
	f.Generation = overlay.Generation(r.u64())
	f.Site = overlay.SiteID(r.str8())
	f.Dialled = r.bool()
	r.bytes(f.Link[:])
	f.Again = r.bool()
	r.bytes(f.Nonce[:])
	checkJob(r, f.Job)
}

// Proof shows that its sender holds the job's link key: a MAC over both
// hellos, the sender's first, and Received.
type Proof struct {
	Received uint64 // bytes of the peer's stream on this link that were received and need not be sent again
	MAC      [32]byte
}

// Type implements Frame.
func (*Proof) Type() Type { return TypeProof }

func (f *Proof) appendBody(b []byte) []byte {
	return append(binary.BigEndian.AppendUint64(b, f.Received), f.MAC[:]...)
}

func (f *Proof) decodeBody(r *reader) {
	f.Received = r.u64()
	r.bytes(f.MAC[:])
}

// ControlHello is the first frame on a control connection, from both ends. The ends continue if
// their ranges of versions overlap, with the newest common one; otherwise each sends a Refuse and
// closes.
type ControlHello struct {
	Oldest, Newest uint8 // control protocol versions that the sender speaks
	Features       uint32
	Software       string // name and version, for logs
}

// Type implements Frame.
func (*ControlHello) Type() Type { return TypeControlHello }

func (f *ControlHello) appendBody(b []byte) []byte {
	b = append(b, f.Oldest, f.Newest)
	b = binary.BigEndian.AppendUint32(b, f.Features)
	return appendStr8(b, f.Software)
}

func (f *ControlHello) decodeBody(r *reader) {
	f.Oldest = r.u8()
	f.Newest = r.u8()
	f.Features = r.u32()
	f.Software = r.str8()
	if r.err == nil && f.Oldest > f.Newest {
		r.err = fmt.Errorf("versions %d to %d", f.Oldest, f.Newest)
	}
}

// principal reads a principal that must be known.
func (r *reader) principal() overlay.Principal {
	p := r.optionalPrincipal()
	if r.err == nil && !p.IsSet() {
		r.err = errors.New("a principal without a user")
	}
	return p
}

// optionalPrincipal reads a principal that may be unknown.
func (r *reader) optionalPrincipal() overlay.Principal {
	p := overlay.Principal{User: r.str8(), Project: r.str8()}
	if r.err == nil {
		r.err = p.Check()
	}
	return p
}

func checkJob(r *reader, id overlay.JobID) {
	if r.err == nil {
		r.err = overlay.CheckJobID(id)
	}
}

func boolByte(v bool) byte {
	if v {
		return 1
	}
	return 0
}

func (r *reader) bool() bool {
	v := r.u8()
	if v > 1 && r.err == nil {
		r.err = fmt.Errorf("truth value %d", v)
	}
	return v == 1
}

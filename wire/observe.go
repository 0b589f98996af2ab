package wire

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"time"
)

// Observe is the first frame on a connection whose dialler wants to know its public address and
// port. The answer is Observed or Refuse.
type Observe struct{}

// Type implements Frame.
func (*Observe) Type() Type { return TypeObserve }

func (*Observe) appendBody(b []byte) []byte { return b }
func (*Observe) decodeBody(*reader)         {}

// Share is the first frame on a connection to a proxy that is to carry several relays. What follows
// is a yamux session, of which each stream begins with a ticket, as a connection of its own does.
type Share struct{}

// Type implements Frame.
func (*Share) Type() Type { return TypeShare }

func (*Share) appendBody(b []byte) []byte { return b }
func (*Share) decodeBody(*reader)         {}

// Observed answers Observe. On the wire an IPv4 address is mapped into IPv6
// (RFC 4291, section 2.5.5.2).
type Observed struct {
	From netip.AddrPort // source of the question; no zone, never unspecified
	Time time.Time      // when it was answered, by the answerer's clock, in whole microseconds
}

// Type implements Frame.
func (*Observed) Type() Type { return TypeObserved }

func (f *Observed) appendBody(b []byte) []byte {
	ip := f.From.Addr().As16()
	b = append(b, ip[:]...)
	b = binary.BigEndian.AppendUint16(b, f.From.Port())
	return binary.BigEndian.AppendUint64(b, uint64(f.Time.UnixMicro()))
}

func (f *Observed) decodeBody(r *reader) {
	var ip [16]byte
	r.bytes(ip[:])
	f.From = netip.AddrPortFrom(netip.AddrFrom16(ip).Unmap(), r.u16())
	us := r.u64()
	f.Time = time.UnixMicro(int64(us))
	if r.err != nil {
		return
	}
	switch {
	case f.From.Addr().IsUnspecified() || f.From.Port() == 0:
		r.err = errors.New("an address or port that no packet can come from")
	case us > maxMicros:
		r.err = errors.New("a time after the year 9999")
	}
}

// maxMicros is the end of the year 9999. A clock beyond it is wrong, and its arithmetic would
// overflow.
const maxMicros = 253402300799_999_999

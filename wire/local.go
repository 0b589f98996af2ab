package wire

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// LocalHello is the first frame from a process to its helper. Key is the public half of the key
// that signs for the job; the helper checks that Job is derived from it. Generation is what an
// earlier helper assigned to the process; 0: none yet.
type LocalHello struct {
	Features   uint32
	Key        [32]byte
	Job        overlay.JobID
	Rank       uint32
	Generation overlay.Generation
}

// Type implements Frame.
func (*LocalHello) Type() Type { return TypeLocalHello }

func (f *LocalHello) appendBody(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, f.Features)
	b = append(b, f.Key[:]...)
	b = appendStr8(b, string(f.Job))
	b = binary.BigEndian.AppendUint32(b, f.Rank)
	return binary.BigEndian.AppendUint64(b, uint64(f.Generation))
}

func (f *LocalHello) decodeBody(r *reader) {
	f.Features = r.u32()
	r.bytes(f.Key[:])
	f.Job = overlay.JobID(r.str8())
	f.Rank = r.u32()
	f.Generation = overlay.Generation(r.u64())
	checkJob(r, f.Job)
}

// LocalPlace answers LocalHello: where the process is, and its generation. The process signs both.
type LocalPlace struct {
	Node       overlay.NodeID
	Generation overlay.Generation // that of the hello, if it had one
}

// Type implements Frame.
func (*LocalPlace) Type() Type { return TypeLocalPlace }

func (f *LocalPlace) appendBody(b []byte) []byte {
	return binary.BigEndian.AppendUint64(appendNode(b, f.Node), uint64(f.Generation))
}

func (f *LocalPlace) decodeBody(r *reader) {
	f.Node = r.node()
	f.Generation = overlay.Generation(r.u64())
}

// LocalProof answers LocalPlace with a signature by the key of the hello (package jobkey).
type LocalProof struct{ Signature [64]byte }

// Type implements Frame.
func (*LocalProof) Type() Type { return TypeLocalProof }

func (f *LocalProof) appendBody(b []byte) []byte { return append(b, f.Signature[:]...) }

func (f *LocalProof) decodeBody(r *reader) { r.bytes(f.Signature[:]) }

// FeatureNames in a LocalWelcome's Features says that the helper supports the frames for published
// names; one that does not would end the connection.
const FeatureNames = 1 << 0

// FeatureGrants in a LocalWelcome's Features says that the helper supports LocalGrant, and passes a
// grant on.
const FeatureGrants = 1 << 1

// FeaturePacketSize in a LocalHello's or LocalWelcome's Features says that its sender supports the
// flags of overlay.Ways and Path.Small; without it none is sent.
const FeaturePacketSize = 1 << 2

// FeatureReserve in a LocalWelcome's Features says that the helper supports overlay.Reserved as the
// way of a LocalDial; without it none is sent.
const FeatureReserve = 1 << 3

// LocalWelcome answers LocalProof once the process is registered. Otherwise a Refuse takes its
// place.
type LocalWelcome struct {
	Features uint32
	Node     overlay.NodeID
}

// Type implements Frame.
func (*LocalWelcome) Type() Type { return TypeLocalWelcome }

func (f *LocalWelcome) appendBody(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, f.Features)
	return appendNode(b, f.Node)
}

func (f *LocalWelcome) decodeBody(r *reader) {
	f.Features = r.u32()
	f.Node = r.node()
}

// LocalDial asks the helper to connect the process to Rank of its own job. The helper answers with
// LocalDialled or LocalFailed within Budget.
type LocalDial struct {
	Request uint32 // chosen by the process, unique among its open requests
	Rank    uint32
	Budget  time.Duration // whole milliseconds on the wire, rounded up
	Ways    overlay.Ways
}

// Type implements Frame.
func (*LocalDial) Type() Type { return TypeLocalDial }

func (f *LocalDial) appendBody(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, f.Request)
	b = binary.BigEndian.AppendUint32(b, f.Rank)
	ms := (f.Budget + time.Millisecond - 1) / time.Millisecond
	b = binary.BigEndian.AppendUint32(b, uint32(min(max(ms, 0), 1<<32-1)))
	return append(b, byte(f.Ways))
}

func (f *LocalDial) decodeBody(r *reader) {
	f.Request = r.u32()
	f.Rank = r.u32()
	f.Budget = time.Duration(r.u32()) * time.Millisecond
	f.Ways = overlay.Ways(r.u8())
	if !f.Ways.Valid() && r.err == nil {
		r.err = fmt.Errorf("unknown %v", f.Ways)
	}
}

// LocalCancel cancels a LocalDial. The helper may already have answered.
type LocalCancel struct{ Request uint32 }

// Type implements Frame.
func (*LocalCancel) Type() Type { return TypeLocalCancel }

func (f *LocalCancel) appendBody(b []byte) []byte {
	return binary.BigEndian.AppendUint32(b, f.Request)
}

func (f *LocalCancel) decodeBody(r *reader) { f.Request = r.u32() }

// LocalDialled answers LocalDial; the connected socket travels with it. The
// helper numbers carriers so that a later LocalFault can name one.
type LocalDialled struct {
	Request uint32
	Carrier uint64
	Seal    bool          // the site wants the carrier encrypted; shares one byte with Path.Small
	Idle    time.Duration // how long the site keeps the carrier's state while it is idle, in whole seconds; 0: unknown
	Path    overlay.Path
}

// Type implements Frame.
func (*LocalDialled) Type() Type { return TypeLocalDialled }

func (f *LocalDialled) appendBody(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, f.Request)
	b = binary.BigEndian.AppendUint64(b, f.Carrier)
	b = append(b, carrierBits(f.Seal, f.Path))
	b = binary.BigEndian.AppendUint32(b, uint32(f.Idle/time.Second))
	return appendPath(b, f.Path)
}

func (f *LocalDialled) decodeBody(r *reader) {
	f.Request = r.u32()
	f.Carrier = r.u64()
	bits := r.carrierBits()
	f.Idle = time.Duration(r.u32()) * time.Second
	f.Path = r.path()
	f.Seal, f.Path.Small = bits&1 != 0, bits&2 != 0
}

// LocalFailed answers LocalDial when no technique connected.
type LocalFailed struct {
	Request uint32
	Code    Code
	Text    string
}

// Type implements Frame.
func (*LocalFailed) Type() Type { return TypeLocalFailed }

func (f *LocalFailed) appendBody(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, f.Request)
	b = append(b, byte(f.Code))
	return appendText(b, f.Text)
}

func (f *LocalFailed) decodeBody(r *reader) {
	f.Request = r.u32()
	f.Code = Code(r.u8())
	f.Text = r.text()
}

// LocalIncoming hands the process a carrier that another process opened; the
// connected socket travels with it.
type LocalIncoming struct {
	Carrier uint64
	Seal    bool          // as in LocalDialled
	Idle    time.Duration // as in LocalDialled
	Path    overlay.Path
}

// Type implements Frame.
func (*LocalIncoming) Type() Type { return TypeLocalIncoming }

func (f *LocalIncoming) appendBody(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, f.Carrier)
	b = append(b, carrierBits(f.Seal, f.Path))
	b = binary.BigEndian.AppendUint32(b, uint32(f.Idle/time.Second))
	return appendPath(b, f.Path)
}

func (f *LocalIncoming) decodeBody(r *reader) {
	f.Carrier = r.u64()
	bits := r.carrierBits()
	f.Idle = time.Duration(r.u32()) * time.Second
	f.Path = r.path()
	f.Seal, f.Path.Small = bits&1 != 0, bits&2 != 0
}

// LocalFault notifies the process that a carrier it was handed will not work, and why: for example,
// that the other end could not reach the relay.
type LocalFault struct {
	Carrier uint64
	Code    Code
	Text    string
}

// Type implements Frame.
func (*LocalFault) Type() Type { return TypeLocalFault }

func (f *LocalFault) appendBody(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, f.Carrier)
	b = append(b, byte(f.Code))
	return appendText(b, f.Text)
}

func (f *LocalFault) decodeBody(r *reader) {
	f.Carrier = r.u64()
	f.Code = Code(r.u8())
	f.Text = r.text()
}

// LocalLeave notifies the helper that the process ends its part in the job and will close its
// socket. A socket that ends without it means that the process has died.
type LocalLeave struct{}

// Type implements Frame.
func (*LocalLeave) Type() Type { return TypeLocalLeave }

func (f *LocalLeave) appendBody(b []byte) []byte { return b }

func (f *LocalLeave) decodeBody(*reader) {}

// LocalDead notifies the process that others of its job have died with their node, which no socket
// reports. A process that does not know the frame learns it from its links, later.
type LocalDead struct {
	Ranks []uint32 // at most MaxDead
	Text  string   // what happened to the node
}

// MaxDead is the maximum number of ranks in one LocalDead.
const MaxDead = 500

// Type implements Frame.
func (*LocalDead) Type() Type { return TypeLocalDead }

func (f *LocalDead) appendBody(b []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(len(f.Ranks)))
	for _, rank := range f.Ranks {
		b = binary.BigEndian.AppendUint32(b, rank)
	}
	return appendText(b, f.Text)
}

func (f *LocalDead) decodeBody(r *reader) {
	n := int(r.u16())
	if n > MaxDead && r.err == nil {
		r.err = fmt.Errorf("%d ranks, at most %d are allowed", n, MaxDead)
	}
	if n > len(r.unread)/4 && r.err == nil {
		r.err = errShort
	}
	if r.err != nil {
		return
	}
	f.Ranks = make([]uint32, n)
	for i := range f.Ranks {
		f.Ranks[i] = r.u32()
	}
	f.Text = r.text()
}

// LocalGrant precedes LocalHello, from a process whose job works for a user of the grid. Only the
// broker reads the grant (package grant). A helper that does not know the frame skips it, and its
// welcome lacks FeatureGrants.
type LocalGrant struct {
	Grant []byte // 1 to MaxGrant bytes
}

// MaxGrant is the longest grant in bytes.
const MaxGrant = 4000

// Type implements Frame.
func (*LocalGrant) Type() Type { return TypeLocalGrant }

func (f *LocalGrant) appendBody(b []byte) []byte {
	return append(binary.BigEndian.AppendUint16(b, uint16(len(f.Grant))), f.Grant...)
}

func (f *LocalGrant) decodeBody(r *reader) {
	n := int(r.u16())
	if (n == 0 || n > MaxGrant) && r.err == nil {
		r.err = fmt.Errorf("a grant of %d bytes, want 1 to %d", n, MaxGrant)
	}
	f.Grant = append([]byte(nil), r.take(n)...)
}

// LocalOutcome reports to the helper the result on a carrier with which it answered a dial: both
// ends have authenticated themselves on it, or could not. Only then has the technique connected, or
// failed. A helper that does not know the frame skips it.
type LocalOutcome struct {
	Carrier uint64
	Code    Code   // 0: the link's handshake is done
	Text    string // otherwise why it is not
}

// Type implements Frame.
func (*LocalOutcome) Type() Type { return TypeLocalOutcome }

func (f *LocalOutcome) appendBody(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, f.Carrier)
	b = append(b, byte(f.Code))
	return appendText(b, f.Text)
}

func (f *LocalOutcome) decodeBody(r *reader) {
	f.Carrier = r.u64()
	f.Code = Code(r.u8())
	f.Text = r.text()
}

// LocalReserve requests that the helper keep a relay ready for the process's link to a generation
// of Rank. There is no answer. A process repeats it; a helper that has a relay ready does nothing.
// A helper that does not know the frame skips it.
type LocalReserve struct {
	Rank       uint32
	Generation overlay.Generation
}

// Type implements Frame.
func (*LocalReserve) Type() Type { return TypeLocalReserve }

func (f *LocalReserve) appendBody(b []byte) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(b, f.Rank), uint64(f.Generation))
}

func (f *LocalReserve) decodeBody(r *reader) {
	f.Rank = r.u32()
	f.Generation = overlay.Generation(r.u64())
}

// LocalTraffic reports to the helper what one link of the process has moved that no daemon counts:
// when the link begins, from time to time while it moves more, and when it is over. A helper that
// does not know the frame skips it.
type LocalTraffic struct{ overlay.Traffic }

// Type implements Frame.
func (*LocalTraffic) Type() Type { return TypeLocalTraffic }

func (f *LocalTraffic) appendBody(b []byte) []byte {
	b = append(b, f.Link[:]...)
	b = binary.BigEndian.AppendUint32(b, f.Rank)
	b = append(appendNode(b, f.Peer), byte(f.Technique))
	b = binary.BigEndian.AppendUint64(b, f.Sent)
	b = binary.BigEndian.AppendUint64(b, f.Received)
	b = binary.BigEndian.AppendUint64(b, uint64(max(f.Lasted.Milliseconds(), 0)))
	return append(b, boolByte(f.Over))
}

func (f *LocalTraffic) decodeBody(r *reader) {
	r.bytes(f.Link[:])
	f.Rank = r.u32()
	f.Peer = r.node()
	f.Technique = overlay.Technique(r.u8()) // not checked: a newer process may have newer ones
	f.Sent = r.u64()
	f.Received = r.u64()
	ms := r.u64()
	if ms > uint64(math.MaxInt64/time.Millisecond) && r.err == nil {
		r.err = fmt.Errorf("a link that lasted %d ms", ms)
	}
	f.Lasted = time.Duration(ms) * time.Millisecond
	f.Over = r.bool()
}

// carrierBits returns the flags of a carrier: bit 0 is Seal, bit 1 Path.Small.
func carrierBits(seal bool, p overlay.Path) byte { return boolByte(seal) | boolByte(p.Small)<<1 }

func (r *reader) carrierBits() byte {
	bits := r.u8()
	if bits > 3 && r.err == nil {
		r.err = fmt.Errorf("unknown bits %#x of a carrier", bits)
	}
	return bits
}

// appendPath appends a path, laid out as technique:u8 via:u8 proxy:str8 site:str8 node:str8
// setup:u32(us) reason:str16; site and node are empty when not known.
func appendPath(b []byte, p overlay.Path) []byte {
	b = append(b, byte(p.Technique), byte(p.Via))
	b = appendStr8(b, p.Proxy)
	b = appendNode(b, p.Peer)
	b = binary.BigEndian.AppendUint32(b, uint32(min(max(p.Setup.Microseconds(), 0), 1<<32-1)))
	return appendText(b, p.Reason)
}

func (r *reader) path() (p overlay.Path) {
	p.Technique = overlay.Technique(r.u8())
	p.Via = overlay.Via(r.u8())
	p.Proxy = r.str8()
	p.Peer = r.node()
	p.Setup = time.Duration(r.u32()) * time.Microsecond
	p.Reason = r.text()
	if r.err == nil && p.Technique != 0 && !p.Technique.Valid() {
		r.err = fmt.Errorf("unknown technique %d", uint8(p.Technique))
	}
	return p
}

func appendNode(b []byte, n overlay.NodeID) []byte {
	return appendStr8(appendStr8(b, string(n.Site)), n.Name)
}

func (r *reader) node() overlay.NodeID {
	site := overlay.SiteID(r.str8())
	return overlay.NodeID{Site: site, Name: r.str8()}
}

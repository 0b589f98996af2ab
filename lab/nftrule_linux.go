package lab

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// The registers that rules use: values to compare go to the first, and a map's key and data lie in
// 32-bit registers from keyRegister and dataRegister on.
const (
	cmpRegister  = unix.NFT_REG_1
	keyRegister  = unix.NFT_REG32_00
	dataRegister = unix.NFT_REG32_04
)

// A ruleReader translates one rule's words into the kernel's expressions. It keeps the first error
// and does nothing after it.
type ruleReader struct {
	words []string
	exprs []expr.Any
	err   error

	strips []byte // TCP options that it removes; it then does nothing else
}

func (r *ruleReader) read() error {
	for len(r.words) > 0 && r.err == nil {
		r.step(r.next())
	}
	if len(r.strips) > 0 && len(r.exprs) > 0 {
		r.fail("a rule that resets TCP options holds for all packets of its chain")
	}
	return r.err
}

func (r *ruleReader) next() string {
	if len(r.words) == 0 {
		r.fail("it ends too early")
		return ""
	}
	w := r.words[0]
	r.words = r.words[1:]
	return w
}

// accept takes the next words if they are want.
func (r *ruleReader) accept(want ...string) bool {
	if len(r.words) < len(want) || !slices.Equal(r.words[:len(want)], want) {
		return false
	}
	r.words = r.words[len(want):]
	return true
}

func (r *ruleReader) expect(want ...string) {
	if !r.accept(want...) {
		r.fail("want %q before %q", strings.Join(want, " "), strings.Join(r.words, " "))
	}
}

func (r *ruleReader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
}

func (r *ruleReader) add(e ...expr.Any) { r.exprs = append(r.exprs, e...) }

// step reads one match or statement that starts with word.
func (r *ruleReader) step(word string) {
	if bits, ok := strings.CutPrefix(word, "@ih,"); ok {
		r.payload(bits)
		return
	}
	switch word {
	case "iifname":
		r.meta(expr.MetaKeyIIFNAME, ifname(r.next()))
	case "oifname":
		r.meta(expr.MetaKeyOIFNAME, ifname(r.next()))
	case "meta":
		r.metaWord()
	case "ct":
		r.conntrack()
	case "ip", "ip6":
		r.network(word)
	case "icmp", "icmpv6":
		r.icmp(word)
	case "tcp", "udp":
		r.transport(word)
	case "update":
		r.remember(unix.NFT_DYNSET_OP_UPDATE)
	case "add":
		r.remember(unix.NFT_DYNSET_OP_ADD)
	case "limit":
		r.limit()
	case "accept":
		r.add(&expr.Verdict{Kind: expr.VerdictAccept})
	case "drop":
		r.add(&expr.Verdict{Kind: expr.VerdictDrop})
	case "reject":
		r.reject()
	case "reset":
		r.expect("tcp", "option")
		name := r.next()
		if tcpOptions[name] == 0 {
			r.fail("unknown TCP option %q", name)
		}
		r.strips = append(r.strips, tcpOptions[name])
	case "masquerade":
		r.masquerade()
	case "dnat":
		r.translate(expr.NATTypeDestNAT)
	case "snat":
		r.translate(expr.NATTypeSourceNAT)
	default:
		r.fail("unknown word %q", word)
	}
}

// limit reads "rate over N/second burst M packets" and "rate over N kbytes/second burst M kbytes",
// which matches the excess over the rate; without "over" it matches what is within.
func (r *ruleReader) limit() {
	r.expect("rate")
	l := &expr.Limit{Over: r.accept("over"), Unit: expr.LimitTimeSecond, Type: expr.LimitTypePkts}
	rate, packets := strings.CutSuffix(r.next(), "/second")
	factor, unit := uint64(1), "packets"
	if !packets {
		l.Type, factor, unit = expr.LimitTypePktBytes, 1024, "kbytes"
		r.expect("kbytes/second")
	}
	l.Rate = r.count(rate) * factor
	r.expect("burst")
	l.Burst = uint32(r.count(r.next()) * factor)
	r.expect(unit)
	r.add(l)
}

// count reads a decimal number above 0.
func (r *ruleReader) count(s string) uint64 {
	n, err := strconv.ParseUint(s, 10, 20)
	if err != nil || n == 0 {
		r.fail("%q is no number of packets or bytes", s)
	}
	return n
}

func (r *ruleReader) meta(key expr.MetaKey, want []byte) {
	r.add(&expr.Meta{Key: key, Register: cmpRegister})
	r.compare(expr.CmpOpEq, want)
}

func (r *ruleReader) compare(op expr.CmpOp, want []byte) {
	r.add(&expr.Cmp{Op: op, Register: cmpRegister, Data: want})
}

// masked keeps the bits of mask and compares with want.
func (r *ruleReader) masked(mask []byte, op expr.CmpOp, want []byte) {
	n := uint32(len(mask))
	r.add(&expr.Bitwise{SourceRegister: cmpRegister, DestRegister: cmpRegister, Len: n, Mask: mask, Xor: make([]byte, n)})
	r.compare(op, want)
}

// ifname returns the value to compare with an interface's name: the whole name, or for "NAME*" its
// beginning.
func ifname(quoted string) []byte {
	text := strings.Trim(quoted, `"`)
	if begin, ok := strings.CutSuffix(text, "*"); ok {
		return []byte(begin)
	}
	name := make([]byte, unix.IFNAMSIZ)
	copy(name, text)
	return name
}

// metaWord reads "l4proto NAME", "nfproto ipv4" or "ipv6", and "priority set MAJOR:MINOR", the class that a scheduler of that
// handle puts the packet into.
func (r *ruleReader) metaWord() {
	if r.accept("nfproto", "ipv4") {
		r.meta(expr.MetaKeyNFPROTO, []byte{unix.NFPROTO_IPV4})
		return
	}
	if r.accept("nfproto", "ipv6") {
		r.meta(expr.MetaKeyNFPROTO, []byte{unix.NFPROTO_IPV6})
		return
	}
	if !r.accept("priority", "set") {
		r.expect("l4proto")
		r.protocol(r.next())
		return
	}
	major := r.number(16)
	r.expect(":")
	class := major<<16 | r.number(16)
	r.add(&expr.Immediate{Register: cmpRegister, Data: binaryutil.NativeEndian.PutUint32(class)},
		&expr.Meta{Key: expr.MetaKeyPRIORITY, SourceRegister: true, Register: cmpRegister})
}

// number reads a hexadecimal number of the given number of bits.
func (r *ruleReader) number(bits int) uint32 {
	s := r.next()
	n, err := strconv.ParseUint(s, 16, bits)
	if err != nil {
		r.fail("%q is no class", s)
	}
	return uint32(n)
}

// network reads "daddr ADDRESS", and "saddr" with the rest of a key and a set
// that must hold it.
func (r *ruleReader) network(word string) {
	if word == "ip" && len(r.words) > 0 && r.words[0] == "saddr" {
		r.words = append([]string{word}, r.words...)
		r.concat(keyRegister)
		r.add(&expr.Lookup{SourceRegister: keyRegister, SetName: strings.TrimPrefix(r.next(), "@")})
		return
	}
	r.expect("daddr")
	r.meta(expr.MetaKeyNFPROTO, []byte{nftVersions[word]})
	r.field(cmpRegister, word, "daddr")
	want := r.address()
	if want.Is4() != (word == "ip") {
		r.fail("%v is no address of %s", want, word)
	}
	r.compare(expr.CmpOpEq, want.AsSlice())
}

var nftVersions = map[string]byte{"ip": unix.NFPROTO_IPV4, "ip6": unix.NFPROTO_IPV6, "icmp": unix.NFPROTO_IPV4, "icmpv6": unix.NFPROTO_IPV6}

// icmpNumbers are the types and codes of ICMP (RFC 792) and ICMPv6 (RFC 4443, RFC 4861).
var icmpNumbers = map[string]byte{
	"icmp type destination-unreachable": 3, "icmp code frag-needed": 4,
	"icmpv6 type packet-too-big": 2, "icmpv6 type nd-neighbor-solicit": 135, "icmpv6 type nd-neighbor-advert": 136,
}

// icmp reads "type NAME" and "code NAME".
func (r *ruleReader) icmp(word string) {
	field, name := r.next(), r.next()
	n, ok := icmpNumbers[word+" "+field+" "+name]
	if !ok {
		r.fail("unknown %s %s %q", word, field, name)
	}
	r.meta(expr.MetaKeyNFPROTO, []byte{nftVersions[word]})
	r.protocol(word)
	offset := uint32(0)
	if field == "code" {
		offset = 1
	}
	r.add(&expr.Payload{DestRegister: cmpRegister, Base: expr.PayloadBaseTransportHeader, Offset: offset, Len: 1})
	r.compare(expr.CmpOpEq, []byte{n})
}

var nftProtocols = map[string]byte{
	"tcp": unix.IPPROTO_TCP, "udp": unix.IPPROTO_UDP, "icmp": unix.IPPROTO_ICMP, "icmpv6": unix.IPPROTO_ICMPV6,
}

func (r *ruleReader) protocol(name string) {
	n, ok := nftProtocols[name]
	if !ok {
		r.fail("unknown protocol %q", name)
	}
	r.meta(expr.MetaKeyL4PROTO, []byte{n})
}

var ctStates = map[string]uint32{
	"invalid": expr.CtStateBitINVALID, "established": expr.CtStateBitESTABLISHED,
	"related": expr.CtStateBitRELATED, "new": expr.CtStateBitNEW,
}

// statusDNAT is IPS_DST_NAT of linux/netfilter/nf_conntrack_common.h.
const statusDNAT = 1 << 5

func (r *ruleReader) conntrack() {
	switch what := r.next(); what {
	case "state":
		var bits uint32
		for more := true; more; more = r.accept(",") {
			name := r.next()
			if ctStates[name] == 0 {
				r.fail("unknown ct state %q", name)
			}
			bits |= ctStates[name]
		}
		r.ctBits(expr.CtKeySTATE, bits)
	case "count": // of the flows that reached the rule and live
		r.expect("over")
		r.add(&expr.Connlimit{Count: uint32(r.count(r.next())), Flags: expr.NFT_CONNLIMIT_F_INV})
	case "bytes": // of the flow, both ways, if the kernel counts them
		r.expect("over")
		r.add(&expr.Ct{Key: expr.CtKeyBYTES, Register: cmpRegister},
			&expr.Byteorder{SourceRegister: cmpRegister, DestRegister: cmpRegister, Op: expr.ByteorderHton, Len: 8, Size: 8})
		r.compare(expr.CmpOpGt, binary.BigEndian.AppendUint64(nil, r.count(r.next())))
	case "status":
		r.expect("dnat")
		r.ctBits(expr.CtKeySTATUS, statusDNAT)
	case "original": // the rest of a key, and the set that must hold it
		r.words = append([]string{"ct", "original"}, r.words...)
		r.concat(keyRegister)
		r.add(&expr.Lookup{SourceRegister: keyRegister, SetName: strings.TrimPrefix(r.next(), "@")})
	case "direction":
		r.expect("original")
		r.add(&expr.Ct{Key: expr.CtKeyDIRECTION, Register: cmpRegister})
		r.compare(expr.CmpOpEq, []byte{0})
	case "mark":
		if r.accept("set") {
			r.add(&expr.Immediate{Register: cmpRegister, Data: r.mark()},
				&expr.Ct{Key: expr.CtKeyMARK, Register: cmpRegister, SourceRegister: true})
			return
		}
		r.add(&expr.Ct{Key: expr.CtKeyMARK, Register: cmpRegister})
		r.compare(expr.CmpOpEq, r.mark())
	default:
		r.fail("unknown ct key %q", what)
	}
}

// mark reads a decimal number of 32 bits.
func (r *ruleReader) mark() []byte {
	s := r.next()
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		r.fail("%q is no mark", s)
	}
	return binaryutil.NativeEndian.PutUint32(uint32(n))
}

// payload reads "[!=] 0xBYTES" after "@ih,BIT,BITS": bytes of the transport payload. A packet with
// fewer bytes matches neither way.
func (r *ruleReader) payload(bits string) {
	var from, n uint32
	if _, err := fmt.Sscanf(bits, "%d,%d", &from, &n); err != nil || from%8 != 0 || n%8 != 0 || n == 0 {
		r.fail("@ih,%s is no whole bytes", bits)
		return
	}
	op := expr.CmpOpEq
	if r.accept("!=") {
		op = expr.CmpOpNeq
	}
	word := r.next()
	want, err := hex.DecodeString(strings.TrimPrefix(word, "0x"))
	if err != nil || uint32(len(want))*8 != n {
		r.fail("%q is not %d bits in hexadecimal", word, n)
		return
	}
	r.add(&expr.Payload{DestRegister: cmpRegister, Base: payloadBaseInner, Offset: from / 8, Len: n / 8})
	r.compare(op, want)
}

// payloadBaseInner is NFT_PAYLOAD_INNER_HEADER of linux/netfilter/nf_tables.h: the transport
// payload, since Linux 5.16.
const payloadBaseInner = expr.PayloadBase(3)

func (r *ruleReader) ctBits(key expr.CtKey, bits uint32) {
	r.add(&expr.Ct{Key: key, Register: cmpRegister})
	r.masked(binaryutil.NativeEndian.PutUint32(bits), expr.CmpOpNeq, make([]byte, 4))
}

// transport reads "tcp dport N[-M]" and "tcp flags & (mask) == bits".
func (r *ruleReader) transport(protocol string) {
	r.protocol(protocol)
	if protocol == "tcp" && r.accept("flags") {
		r.flags()
		return
	}
	r.expect("dport")
	r.field(cmpRegister, protocol, "dport")
	first, last, isRange := strings.Cut(r.next(), "-")
	if !isRange {
		r.compare(expr.CmpOpEq, r.port(first))
		return
	}
	r.add(&expr.Range{Op: expr.CmpOpEq, Register: cmpRegister, FromData: r.port(first), ToData: r.port(last)})
}

func (r *ruleReader) port(s string) []byte {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil {
		r.fail("%q is no port", s)
	}
	return binary.BigEndian.AppendUint16(nil, uint16(n))
}

func (r *ruleReader) address() netip.Addr {
	s := r.next()
	a, err := netip.ParseAddr(s)
	if err != nil {
		r.fail("%q is no address", s)
	}
	return a
}

// tcpFlags are the bits of octet 13 of the TCP header, RFC 9293 section 3.1.
var tcpFlags = map[string]byte{"fin": 1, "syn": 2, "rst": 4, "ack": 16}

func (r *ruleReader) flags() {
	r.expect("&", "(")
	var mask byte
	for more := true; more; more = r.accept("|") {
		mask |= tcpFlags[r.next()]
	}
	r.expect(")")
	op := expr.CmpOpEq
	if r.accept("!=") {
		op = expr.CmpOpNeq
	} else {
		r.expect("==")
	}
	want := tcpFlags[r.next()]
	if mask == 0 || want == 0 {
		r.fail("unknown TCP flag")
	}
	r.add(&expr.Payload{DestRegister: cmpRegister, Base: expr.PayloadBaseTransportHeader, Offset: 13, Len: 1})
	r.masked([]byte{mask}, op, []byte{want})
}

func (r *ruleReader) reject() {
	r.expect("with")
	if r.accept("tcp", "reset") {
		r.protocol("tcp")
		r.add(&expr.Reject{Type: unix.NFT_REJECT_TCP_RST})
		return
	}
	r.expect("icmpx", "admin-prohibited")
	r.add(&expr.Reject{Type: unix.NFT_REJECT_ICMPX_UNREACH, Code: unix.NFT_REJECT_ICMPX_ADMIN_PROHIBITED})
}

// field loads a header field into a register.
func (r *ruleReader) field(register uint32, protocol, name string) {
	switch protocol + " " + name {
	case "ip saddr":
		r.add(&expr.Payload{DestRegister: register, Base: expr.PayloadBaseNetworkHeader, Offset: 12, Len: 4})
	case "ip daddr":
		r.add(&expr.Payload{DestRegister: register, Base: expr.PayloadBaseNetworkHeader, Offset: 16, Len: 4})
	case "ip6 daddr":
		r.add(&expr.Payload{DestRegister: register, Base: expr.PayloadBaseNetworkHeader, Offset: 24, Len: 16})
	case "tcp sport", "udp sport":
		r.add(&expr.Payload{DestRegister: register, Base: expr.PayloadBaseTransportHeader, Offset: 0, Len: 2})
	case "tcp dport", "udp dport":
		r.add(&expr.Payload{DestRegister: register, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2})
	default:
		r.fail("unknown field %q", protocol+" "+name)
	}
}

// concat loads fields joined by "." into registers from first on.
func (r *ruleReader) concat(first uint32) {
	for more := true; more && r.err == nil; more = r.accept(".") {
		switch {
		case r.accept("ct", "original", "ip", "saddr"):
			r.add(&expr.Ct{Key: expr.CtKeySRC, Register: first})
		case r.accept("ct", "original", "proto-src"):
			r.add(&expr.Ct{Key: expr.CtKeyPROTOSRC, Register: first})
		default:
			r.field(first, r.next(), r.next())
		}
		first++
	}
}

// remember reads "@map { key timeout T : data }", without data for a set.
func (r *ruleReader) remember(operation uint32) {
	name := strings.TrimPrefix(r.next(), "@")
	r.expect("{")
	r.concat(keyRegister)
	r.expect("timeout")
	timeout, err := time.ParseDuration(r.next())
	if err != nil {
		r.fail("%w", err)
	}
	dynset := &expr.Dynset{SrcRegKey: keyRegister, SetName: name, Operation: operation, Timeout: timeout}
	if r.accept(":") {
		r.concat(dataRegister)
		dynset.SrcRegData = dataRegister
	}
	r.expect("}")
	r.add(dynset)
}

// masquerade reads "random,fully-random", "to :FIRST-LAST", the ports to take, or nothing.
func (r *ruleReader) masquerade() {
	if r.accept("to", ":") {
		first, last, _ := strings.Cut(r.next(), "-")
		r.add(&expr.Immediate{Register: dataRegister, Data: r.port(first)}, &expr.Immediate{Register: dataRegister + 1, Data: r.port(last)},
			&expr.Masq{ToPorts: true, RegProtoMin: dataRegister, RegProtoMax: dataRegister + 1})
		return
	}
	random := r.accept("random", ",", "fully-random")
	r.add(&expr.Masq{Random: random, FullyRandom: random})
}

// translate reads "to ADDRESS", "to ADDRESS:PORT", "to KEY map @m" (the map gives an address) and
// "ip to KEY map @m" (the map gives an address and a port).
func (r *ruleReader) translate(kind expr.NATType) {
	nat := &expr.NAT{Type: kind, Family: unix.NFPROTO_IPV4, RegAddrMin: dataRegister}
	if r.accept("ip") {
		nat.RegProtoMin = dataRegister + 1
	}
	r.expect("to")
	switch len(r.words) {
	case 1:
		r.add(&expr.Immediate{Register: dataRegister, Data: r.address().AsSlice()})
	case 3:
		r.add(&expr.Immediate{Register: dataRegister, Data: r.address().AsSlice()})
		r.expect(":")
		r.add(&expr.Immediate{Register: dataRegister + 1, Data: r.port(r.next())})
		nat.RegProtoMin = dataRegister + 1
	default:
		r.concat(keyRegister)
		r.expect("map")
		name := strings.TrimPrefix(r.next(), "@")
		r.add(&expr.Lookup{SourceRegister: keyRegister, DestRegister: dataRegister, IsDestRegSet: true, SetName: name})
	}
	r.add(nat)
}

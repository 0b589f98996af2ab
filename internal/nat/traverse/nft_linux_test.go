//go:build system

package traverse

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"github.com/isthmus-grid/isthmus/lab"
)

// The firewalls that no preset of the lab has are made of these parts, added to the rules of a
// gateway that lets everything through, or to a node.

// A rule is a list of expressions.
type rule []expr.Any

func concat(parts ...rule) (r rule) {
	for _, p := range parts {
		r = append(r, p...)
	}
	return r
}

// in and out match the interface.
func in(name string) rule  { return iface(expr.MetaKeyIIFNAME, name) }
func out(name string) rule { return iface(expr.MetaKeyOIFNAME, name) }

func iface(key expr.MetaKey, name string) rule {
	padded := make([]byte, 16)
	copy(padded, name)
	return rule{&expr.Meta{Key: key, Register: 1}, &expr.Cmp{Register: 1, Op: expr.CmpOpEq, Data: padded}}
}

// tcp matches segments whose flags under mask are value.
func tcp(mask, value byte) rule {
	return rule{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, &expr.Cmp{Register: 1, Op: expr.CmpOpEq, Data: []byte{6}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 13, Len: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 1, Mask: []byte{mask}, Xor: []byte{0}},
		&expr.Cmp{Register: 1, Op: expr.CmpOpEq, Data: []byte{value}},
	}
}

var bareSYN = tcp(flagFIN|flagSYN|flagRST|flagACK, flagSYN)

// state matches the connection's state.
func state(bits uint32) rule {
	return rule{
		&expr.Ct{Key: expr.CtKeySTATE, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: binary.NativeEndian.AppendUint32(nil, bits), Xor: make([]byte, 4)},
		&expr.Cmp{Register: 1, Op: expr.CmpOpNeq, Data: make([]byte, 4)},
	}
}

const (
	invalid     = expr.CtStateBitINVALID
	established = expr.CtStateBitESTABLISHED | expr.CtStateBitRELATED
	untracked   = expr.CtStateBitNEW
)

// addr matches an address, at offset 12 (source) or 16 (destination) of the header; setAddr
// overwrites one, without connection tracking.
func addr(offset uint32, a netip.Addr) rule {
	return rule{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: 4},
		&expr.Cmp{Register: 1, Op: expr.CmpOpEq, Data: a.AsSlice()},
	}
}

func setAddr(offset uint32, a netip.Addr) rule {
	return rule{
		&expr.Immediate{Register: 1, Data: a.AsSlice()},
		&expr.Payload{
			OperationType: expr.PayloadWrite, SourceRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: 4,
			CsumType: expr.CsumTypeInet, CsumOffset: 10, CsumFlags: unixPseudoHeader,
		},
	}
}

const unixPseudoHeader = 1 // NFT_PAYLOAD_L4CSUM_PSEUDOHDR: correct TCP's checksum as well

var (
	accept = rule{&expr.Verdict{Kind: expr.VerdictAccept}}
	drop   = rule{&expr.Verdict{Kind: expr.VerdictDrop}}
)

// A chain says where rules apply.
type chain struct {
	hook     *nftables.ChainHook
	priority *nftables.ChainPriority
	rules    []rule
}

func forward(rules ...rule) []chain {
	return []chain{{nftables.ChainHookForward, nftables.ChainPriorityFilter, rules}}
}

// install adds chains to the firewall of a host.
func install(t *testing.T, h *lab.Host, chains []chain) {
	t.Helper()
	err := h.Do(func() error {
		c, err := nftables.New()
		if err != nil {
			return err
		}
		table := c.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: "test"})
		for i, ch := range chains {
			nc := c.AddChain(&nftables.Chain{Name: fmt.Sprint("c", i), Table: table, Type: nftables.ChainTypeFilter, Hooknum: ch.hook, Priority: ch.priority})
			for _, r := range ch.rules {
				c.AddRule(&nftables.Rule{Table: table, Chain: nc, Exprs: r})
			}
		}
		return c.Flush()
	})
	if err != nil {
		t.Fatalf("rules for %s: %v", h.Name(), err)
	}
}

// sysctl sets a value below /proc/sys/net on a host.
func sysctl(t *testing.T, h *lab.Host, name, value string) {
	t.Helper()
	err := h.Do(func() error {
		return os.WriteFile("/proc/sys/net/"+strings.ReplaceAll(name, ".", "/"), []byte(value), 0)
	})
	if err != nil {
		t.Fatalf("%s on %s: %v", name, h.Name(), err)
	}
}

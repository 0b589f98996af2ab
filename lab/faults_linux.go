package lab

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// A Fault is an action of a host on a flow until it is lifted, ahead of its firewall's own rules.
// It ends with the lab at the latest.
type Fault struct {
	host  *Host
	table string
}

// Drop makes the host silently drop a flow's packets, those that it forwards and its own.
func (h *Host) Drop(f Flow) (*Fault, error) {
	return h.inflict(f, &expr.Verdict{Kind: expr.VerdictDrop})
}

// Police makes the host pass at most rate bytes per second of a flow's packets in each direction,
// and drop the excess without a queue.
func (h *Host) Police(f Flow, rate uint64) (*Fault, error) {
	return h.inflict(f, &expr.Verdict{Kind: expr.VerdictDrop}, &expr.Limit{
		Type: expr.LimitTypePktBytes, Rate: rate, Over: true, Unit: expr.LimitTimeSecond, Burst: uint32(rate / 2),
	})
}

// Reset makes the host answer every TCP segment of a flow with a reset to its sender, and drop the
// segment; resets pass. The reset's sequence number is what the segment acknowledges, so that the
// sender's kernel accepts it as the peer's (RFC 9293, section 3.5.3, and RFC 5961): both ends of a
// connection in use lose it.
func (h *Host) Reset(f Flow) (*Fault, error) {
	return h.inflict(f, &expr.Reject{Type: unix.NFT_REJECT_TCP_RST})
}

// Strip makes the host remove TCP options, as nft names them, from all that it forwards, sends and
// receives.
func (h *Host) Strip(options ...string) (*Fault, error) {
	fault := &Fault{host: h, table: fmt.Sprintf("fault%d", faults.Add(1))}
	rules := strings.Replace(strips(options...), "table inet mangle", "table ip "+fault.table, 1)
	if err := h.Do(func() error { return loadRules(rules) }); err != nil {
		return nil, fmt.Errorf("%s: stripping options: %w", h.Name(), err)
	}
	return fault, nil
}

// faults numbers the tables of faults.
var faults atomic.Uint64

// faultHooks are the hooks where a host sees each packet once.
var faultHooks = []*nftables.ChainHook{nftables.ChainHookInput, nftables.ChainHookForward, nftables.ChainHookOutput}

// inflict applies the verdict to a flow, if the conditions hold.
func (h *Host) inflict(f Flow, verdict expr.Any, conditions ...expr.Any) (*Fault, error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	fault := &Fault{host: h, table: fmt.Sprintf("fault%d", faults.Add(1))}
	_, reset := verdict.(*expr.Reject)
	err := h.Do(func() error {
		nftMutex.Lock()
		defer nftMutex.Unlock()
		conn, err := nftables.New()
		if err != nil {
			return err
		}
		table := conn.AddTable(&nftables.Table{Name: fault.table, Family: nftables.TableFamilyIPv4})
		for i, hook := range faultHooks {
			chain := conn.AddChain(&nftables.Chain{
				Name: fmt.Sprint("hook", i), Table: table, Type: nftables.ChainTypeFilter, Hooknum: hook,
				Priority: nftables.ChainPriorityRef(*nftables.ChainPriorityFilter - 10),
			})
			for _, way := range [][2]netip.AddrPort{{f.A, f.B}, {f.B, f.A}} {
				conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: append(append(match(way[0], way[1], reset), conditions...), &expr.Counter{}, verdict)})
			}
		}
		return conn.Flush()
	})
	if err != nil {
		return nil, fmt.Errorf("%s: a fault between %v: %w", h.Name(), f, err)
	}
	return fault, nil
}

// match returns the expressions that match the packets from one endpoint to another.
func match(from, to netip.AddrPort, reset bool) []expr.Any {
	var r ruleReader
	if reset || from.Port() != 0 || to.Port() != 0 {
		r.protocol("tcp")
	}
	if reset { // resets pass: the host's own are among its output
		r.add(&expr.Payload{DestRegister: cmpRegister, Base: expr.PayloadBaseTransportHeader, Offset: 13, Len: 1})
		r.masked([]byte{tcpFlags["rst"]}, expr.CmpOpEq, []byte{0})
	}
	for _, end := range []struct {
		netip.AddrPort
		address, port string
	}{{from, "saddr", "sport"}, {to, "daddr", "dport"}} {
		if end.Addr().IsValid() {
			r.field(cmpRegister, "ip", end.address)
			r.compare(expr.CmpOpEq, end.Addr().AsSlice())
		}
		if end.Port() != 0 {
			r.field(cmpRegister, "tcp", end.port)
			r.compare(expr.CmpOpEq, binary.BigEndian.AppendUint16(nil, end.Port()))
		}
	}
	return r.exprs
}

// Met returns how many packets the fault has matched.
func (f *Fault) Met() (n uint64, err error) {
	err = f.host.Do(func() error {
		nftMutex.Lock()
		defer nftMutex.Unlock()
		conn, err := nftables.New()
		if err != nil {
			return err
		}
		table := &nftables.Table{Name: f.table, Family: nftables.TableFamilyIPv4}
		for i := range faultHooks {
			rules, err := conn.GetRules(table, &nftables.Chain{Name: fmt.Sprint("hook", i), Table: table})
			if err != nil {
				return err
			}
			n += packets(rules)
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("%s: counting what a fault met: %w", f.host.Name(), err)
	}
	return n, nil
}

// packets adds up the counters of rules.
func packets(rules []*nftables.Rule) (n uint64) {
	for _, r := range rules {
		for _, e := range r.Exprs {
			if c, ok := e.(*expr.Counter); ok {
				n += c.Packets
			}
		}
	}
	return n
}

// Lift ends the fault. Call it once.
func (f *Fault) Lift() error {
	err := f.host.Do(func() error {
		nftMutex.Lock()
		defer nftMutex.Unlock()
		conn, err := nftables.New()
		if err != nil {
			return err
		}
		conn.DelTable(&nftables.Table{Name: f.table, Family: nftables.TableFamilyIPv4})
		return conn.Flush()
	})
	if err != nil {
		return fmt.Errorf("%s: lifting a fault: %w", f.host.Name(), err)
	}
	return nil
}

// ForgetFlows empties the host's connection tracking table, as a restarting gateway does: its
// firewall and NAT no longer know any connection.
func (h *Host) ForgetFlows() error {
	err := h.Do(func() error {
		nl, err := netlink.NewHandle(unix.NETLINK_NETFILTER)
		if err != nil {
			return err
		}
		defer nl.Close()
		return nl.ConntrackTableFlush(netlink.ConntrackTable)
	})
	if err != nil {
		return fmt.Errorf("%s: forgetting tracked connections: %w", h.Name(), err)
	}
	return nil
}

// ForgetNames makes no name of the lab's hosts resolve any more.
func (l *Lab) ForgetNames() error { return writeNames("127.0.0.1 localhost\n::1 localhost\n") }

// RestoreNames undoes ForgetNames.
func (l *Lab) RestoreNames() error { return writeNames(l.plan.hostsFile()) }

// writeNames replaces the hosts file, which is mounted where hosts read it.
func writeNames(text string) error {
	if err := os.WriteFile(filepath.Join(Dir(), "hosts"), []byte(text), 0o644); err != nil {
		return fmt.Errorf("writing the hosts file: %w", err)
	}
	return nil
}

// Renumber replaces an IPv4 address of the host by another of the same network, as a new lease
// does: connections from and to the old one receive nothing more. Addr and WANAddr keep returning
// what the host was built with.
func (h *Host) Renumber(from, to netip.Addr) error {
	if err := h.Do(func() error { return renumber(from, to) }); err != nil {
		return fmt.Errorf("%s: replacing the address %v by %v: %w", h.Name(), from, to, err)
	}
	return nil
}

// renumber acts on the calling thread's host.
func renumber(from, to netip.Addr) error {
	nl, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer nl.Close()
	addrs, err := nl.AddrList(nil, netlink.FAMILY_V4)
	if err != nil {
		return err
	}
	for _, a := range addrs {
		if got, _ := netip.AddrFromSlice(a.IP.To4()); got != from {
			continue
		}
		link, err := nl.LinkByIndex(a.LinkIndex)
		if err != nil {
			return err
		}
		routes, err := nl.RouteList(link, netlink.FAMILY_V4)
		if err != nil {
			return err
		}
		if err := nl.AddrDel(link, &a); err != nil {
			return err
		}
		n := ipNet(netip.PrefixFrom(to, maskBits(a)))
		if err := nl.AddrAdd(link, &netlink.Addr{IPNet: n}); err != nil {
			return err
		}
		return restore(nl, routes)
	}
	return fmt.Errorf("the host has no such address")
}

func maskBits(a netlink.Addr) int {
	bits, _ := a.Mask.Size()
	return bits
}

// restore adds the routes through a router again that were removed with an address.
func restore(nl *netlink.Handle, routes []netlink.Route) error {
	for _, r := range routes {
		if r.Gw == nil {
			continue // to the network itself: it is added with the address
		}
		r.Src = nil
		if err := nl.RouteReplace(&r); err != nil {
			return err
		}
	}
	return nil
}

package wan

import (
	"encoding/binary"
	"fmt"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/xt"
)

// rules is the table that sends forwarded packets to the queues. It keeps its
// netlink socket, which stays in the namespace it was opened in, so that any
// thread may remove the table.
type rules struct {
	conn  *nftables.Conn
	table *nftables.Table
}

// A diversion sends packets that enter by interface in, and leave by out unless that is 0, to a
// queue.
type diversion struct {
	in, out uint32
	queue   uint16
}

// installRules puts the diversions into a table of that name in the calling thread's namespace,
// replacing one that an emulator left behind.
func installRules(name string, to []diversion) (*rules, error) {
	conn, err := nftables.New(nftables.AsLasting())
	if err != nil {
		return nil, fmt.Errorf("wan: nftables socket: %w", err)
	}
	r := &rules{conn: conn, table: &nftables.Table{Name: name, Family: nftables.TableFamilyINet}}
	conn.AddTable(r.table) // so that the next line has something to delete
	conn.DelTable(r.table)
	conn.AddTable(r.table)
	chain := conn.AddChain(&nftables.Chain{
		Name: "forward", Table: r.table, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookForward,
		// After the namespace's own filters: packets they drop never enter the WAN.
		Priority: nftables.ChainPriorityRef(*nftables.ChainPriorityFilter + 10),
	})
	for _, d := range to {
		conn.AddRule(&nftables.Rule{Table: r.table, Chain: chain, Exprs: d.exprs()})
	}
	if err := conn.Flush(); err != nil {
		conn.CloseLasting()
		return nil, fmt.Errorf("wan: install the forward rules (needs nf_tables, nft_compat and xt_NFQUEUE): %w", err)
	}
	return r, nil
}

// remove deletes the table and closes the socket.
func (r *rules) remove() error {
	r.conn.DelTable(r.table)
	err := r.conn.Flush()
	if err != nil {
		err = fmt.Errorf("wan: remove the forward rules: %w", err)
	}
	r.conn.CloseLasting()
	return err
}

func (d diversion) exprs() []expr.Any {
	e := matchInterface(nil, expr.MetaKeyIIF, d.in)
	if d.out != 0 {
		e = matchInterface(e, expr.MetaKeyOIF, d.out)
	}
	// The native queue expression is missing from many kernels' configurations; the iptables target
	// through nft_compat exists wherever iptables-nft does.
	info := xt.Unknown(queueTarget(d.queue))
	return append(e, &expr.Target{Name: "NFQUEUE", Rev: 3, Info: &info})
}

func matchInterface(e []expr.Any, key expr.MetaKey, index uint32) []expr.Any {
	return append(e,
		&expr.Meta{Key: key, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.NativeEndian.PutUint32(index)})
}

// queueTarget returns struct xt_NFQ_info_v3: queue:u16 queues:u16 flags:u16, padded to 8 bytes. No
// bypass flag: without the emulator there is no WAN.
func queueTarget(queue uint16) []byte {
	b := make([]byte, 8)
	binary.NativeEndian.PutUint16(b, queue)
	binary.NativeEndian.PutUint16(b[2:], 1)
	return b
}

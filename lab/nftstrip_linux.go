package lab

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// A stripRule removes options from every TCP header that passes: nft's "reset tcp option", for
// which the nftables package has no expression. The rest of its chain must not depend on its
// position: it is added after the rules that the package adds.
type stripRule struct {
	family       byte
	table, chain string
	kinds        []byte
}

// tcpOptions are the kinds that can be removed, as nft names them (RFC 9293, section 3.1; RFC 7323;
// RFC 2018).
var tcpOptions = map[string]byte{"maxseg": 2, "window": 3, "sack-perm": 4, "timestamp": 8}

// stripOptions adds rules in the calling thread's network namespace, one by one.
func stripOptions(rules []stripRule) error {
	for _, r := range rules {
		if err := r.add(); err != nil {
			return fmt.Errorf("rules: chain %s: reset tcp option (the kernel needs nft_exthdr of 5.18): %w", r.chain, err)
		}
	}
	return nil
}

func (r stripRule) add() error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	const newRule = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWRULE
	batch := nfMessage(unix.NFNL_MSG_BATCH_BEGIN, 0, unix.NFNL_SUBSYS_NFTABLES, unix.AF_UNSPEC, nil)
	batch = append(batch, nfMessage(newRule, unix.NLM_F_CREATE|unix.NLM_F_APPEND|unix.NLM_F_ACK, 0, r.family, r.attributes())...)
	batch = append(batch, nfMessage(unix.NFNL_MSG_BATCH_END, 0, unix.NFNL_SUBSYS_NFTABLES, unix.AF_UNSPEC, nil)...)
	if err := unix.Sendto(fd, batch, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return os.NewSyscallError("sendto", err)
	}
	answer := make([]byte, 8192)
	n, _, err := unix.Recvfrom(fd, answer, 0) // the kernel answers before sendto returns
	if err != nil {
		return os.NewSyscallError("recvfrom", err)
	}
	if n < unix.NLMSG_HDRLEN+4 || binary.NativeEndian.Uint16(answer[4:]) != unix.NLMSG_ERROR {
		return errors.New("the kernel's answer is no acknowledgement")
	}
	if code := int32(binary.NativeEndian.Uint32(answer[unix.NLMSG_HDRLEN:])); code != 0 {
		return unix.Errno(-code)
	}
	return nil
}

// nfMessage is a message of linux/netfilter/nfnetlink.h: a netlink header, then
// family, version and resource.
func nfMessage(kind, flags, resource uint16, family byte, attributes []byte) []byte {
	m := binary.NativeEndian.AppendUint32(nil, uint32(unix.NLMSG_HDRLEN+4+len(attributes)))
	m = binary.NativeEndian.AppendUint16(m, kind)
	m = binary.NativeEndian.AppendUint16(m, flags|unix.NLM_F_REQUEST)
	m = append(m, make([]byte, 8)...) // sequence, port
	m = append(m, family, unix.NFNETLINK_V0)
	m = binary.BigEndian.AppendUint16(m, resource)
	return append(m, attributes...)
}

func (r stripRule) attributes() []byte {
	list := nl.NewRtAttr(unix.NFTA_RULE_EXPRESSIONS|unix.NLA_F_NESTED, nil)
	for _, kind := range r.kinds {
		e := list.AddRtAttr(unix.NFTA_LIST_ELEM|unix.NLA_F_NESTED, nil)
		e.AddRtAttr(unix.NFTA_EXPR_NAME, nl.ZeroTerminated("exthdr"))
		data := e.AddRtAttr(unix.NFTA_EXPR_DATA|unix.NLA_F_NESTED, nil)
		data.AddRtAttr(unix.NFTA_EXTHDR_TYPE, []byte{kind})
		data.AddRtAttr(unix.NFTA_EXTHDR_OP, binary.BigEndian.AppendUint32(nil, unix.NFT_EXTHDR_OP_TCPOPT)) // without a register: to remove
	}
	b := nl.NewRtAttr(unix.NFTA_RULE_TABLE, nl.ZeroTerminated(r.table)).Serialize()
	b = append(b, nl.NewRtAttr(unix.NFTA_RULE_CHAIN, nl.ZeroTerminated(r.chain)).Serialize()...)
	return append(b, list.Serialize()...)
}

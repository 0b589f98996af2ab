package store

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
)

// Address is the address of an etcd.
type Address struct {
	Hosts  []string // host:port each
	Prefix string   // of the keys, as in "isthmus"
}

// ParseEtcd parses etcd://host:port,host:port/prefix.
func ParseEtcd(text string) (Address, error) {
	fail := func(why string, args ...any) (Address, error) {
		return Address{}, fmt.Errorf("%q: %s; write etcd://host:2379,host:2379/prefix", text, fmt.Sprintf(why, args...))
	}
	rest, ok := strings.CutPrefix(text, "etcd://")
	if !ok {
		return fail("it is no address of an etcd")
	}
	hosts, prefix, _ := strings.Cut(rest, "/")
	prefix = strings.Trim(prefix, "/")
	a := Address{Prefix: prefix}
	if prefix == "" {
		return fail("a prefix of the keys is missing, which is this grid's alone")
	}
	for _, h := range strings.Split(hosts, ",") {
		if host, port, err := net.SplitHostPort(h); err != nil || host == "" || port == "" {
			return fail("%q is no host:port", h)
		}
		a.Hosts = append(a.Hosts, h)
	}
	return a, nil
}

// Local reports whether all hosts are addresses of this machine.
func (a Address) Local() bool {
	for _, h := range a.Hosts {
		host, _, _ := net.SplitHostPort(h)
		if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
			return false
		}
	}
	return true
}

// String returns the form that ParseEtcd parses.
func (a Address) String() string {
	return "etcd://" + strings.Join(a.Hosts, ",") + "/" + a.Prefix
}

// etcdClient opens the store at an address; nil: this program has no client.
var etcdClient func(at Address, cfg *tls.Config) (Store, error)

// RegisterEtcd sets what OpenEtcd calls. Package store/etcd does so when it is initialized, and the
// programs that may run a broker with an etcd import it: its client and what that depends on are a
// tenth of a program.
func RegisterEtcd(open func(at Address, cfg *tls.Config) (Store, error)) { etcdClient = open }

// ErrNoClient means that the program includes no client for an etcd.
var ErrNoClient = errors.New("this program has no client for an etcd: run isthmus-broker, which has one")

// OpenEtcd returns the store at an address, over TLS if cfg is not nil. It does not wait for a
// connection: calls fail while there is none. The error is ErrNoClient where package store/etcd is
// not part of the program. Close the store.
func OpenEtcd(at Address, cfg *tls.Config) (Store, error) {
	if etcdClient == nil {
		return nil, fmt.Errorf("store: %v: %w", at, ErrNoClient)
	}
	return etcdClient(at, cfg)
}

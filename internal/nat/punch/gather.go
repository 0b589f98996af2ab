package punch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/pion/ice/v4"
	"github.com/quic-go/quic-go"

	"github.com/isthmus-grid/isthmus/overlay"
)

const (
	// checkInterval is how often every pair of addresses is checked.
	checkInterval = 20 * time.Millisecond
	// stragglers is the minimum time that the other STUN servers get after the first has answered;
	// they also get as long again as that took.
	stragglers = 20 * time.Millisecond
)

// ownAddresses returns the host candidates of the socket: its address, or for a wildcard socket the
// source addresses of packets to the STUN servers. It asks the routing table and sends nothing.
func ownAddresses(socket *net.UDPConn, cfg Config) ([]netip.AddrPort, error) {
	bound := addrPort(socket.LocalAddr())
	if !bound.Addr().IsUnspecified() {
		if err := cfg.permits(bound.Addr()); err != nil {
			return nil, fmt.Errorf("the socket's address: %w", err)
		}
		return []netip.AddrPort{bound}, nil
	}
	var own []netip.AddrPort
	var first error
	for _, server := range cfg.STUN {
		a, err := sourceTowards(server)
		if err == nil {
			err = cfg.permits(a)
		}
		if err == nil && bound.Addr().Is4() && !a.Is4() {
			err = fmt.Errorf("the socket is for IPv4 only: %w", overlay.ErrUnreachable)
		}
		if err != nil {
			if first == nil {
				first = fmt.Errorf("towards STUN server %v: %w", server, err)
			}
			continue
		}
		if own1 := netip.AddrPortFrom(a, bound.Port()); !slices.Contains(own, own1) && len(own) < MaxCandidates/2 {
			own = append(own, own1)
		}
	}
	if len(own) > 0 {
		return own, nil
	}
	if first == nil {
		first = errors.New("the socket has a wildcard address and no STUN server is given that would choose one")
	}
	return nil, first
}

// sourceTowards returns the source address of packets to server.
func sourceTowards(server netip.AddrPort) (netip.Addr, error) {
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(server))
	if err != nil {
		return netip.Addr{}, fmt.Errorf("%w: %w", overlay.ErrUnreachable, err)
	}
	defer c.Close()
	return addrPort(c.LocalAddr()).Addr(), nil
}

// An iceSide is this end's ICE on the shared socket.
type iceSide struct {
	shared          *sharedSocket
	mux             *mux
	agent           *ice.Agent // set by start
	options         []ice.AgentOption
	ufrag, password string
}

func newICESide(t *quic.Transport, hosts []netip.AddrPort, log *slog.Logger) *iceSide {
	shared := newSharedSocket(t)
	logs := iceLogs{log}
	s := &iceSide{shared: shared, mux: &mux{
		UniversalUDPMuxDefault: ice.NewUniversalUDPMuxDefault(ice.UniversalUDPMuxParams{
			UDPConn: shared, Logger: logs.NewLogger("mux"),
		}),
	}}
	var networks []ice.NetworkType
	for _, h := range hosts {
		s.mux.addrs = append(s.mux.addrs, net.UDPAddrFromAddrPort(h))
		network := ice.NetworkTypeUDP6
		if h.Addr().Is4() {
			network = ice.NetworkTypeUDP4
		}
		if !slices.Contains(networks, network) {
			networks = append(networks, network)
		}
	}
	s.options = []ice.AgentOption{
		ice.WithUDPMux(s.mux),
		ice.WithNetworkTypes(networks),
		// A mapped address is not a candidate of the agent itself: what is sent from it is sent
		// from the host candidate (RFC 8445 section 6.1.2.4).
		ice.WithCandidateTypes([]ice.CandidateType{ice.CandidateTypeHost}),
		ice.WithMulticastDNSMode(ice.MulticastDNSModeDisabled),
		ice.WithIncludeLoopback(), // ownAddresses has decided
		ice.WithLoggerFactory(logs),
		ice.WithCheckInterval(checkInterval),
		ice.WithMaxBindingRequests(^uint16(0)), // the context ends the checks
		ice.WithDisconnectedTimeout(0),
		ice.WithFailedTimeout(0),
		ice.WithHostAcceptanceMinWait(0), // accept the first pair that works
		ice.WithSrflxAcceptanceMinWait(0),
		ice.WithPrflxAcceptanceMinWait(0),
	}
	return s
}

// start makes the agent with its host candidates.
func (s *iceSide) start(ctx context.Context) error {
	agent, err := ice.NewAgentWithOptions(s.options...)
	if err != nil {
		return fmt.Errorf("ICE: %w", err)
	}
	s.agent = agent
	gathered := make(chan struct{})
	err = agent.OnCandidate(func(c ice.Candidate) {
		if c == nil {
			close(gathered)
		}
	})
	if err == nil {
		err = agent.GatherCandidates()
	}
	if err == nil {
		s.ufrag, s.password, err = agent.GetLocalUserCredentials()
	}
	if err != nil {
		return fmt.Errorf("ICE: %w", err)
	}
	select {
	case <-gathered:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for ICE to take its addresses: %w", classify(ctx.Err()))
	}
}

// close ends ICE and does not touch the socket.
func (s *iceSide) close() {
	if s.agent != nil {
		s.agent.GracefulClose()
	}
	s.mux.Close()
	s.shared.Close()
}

// mapping is the answer of one STUN server.
type mapping struct {
	server netip.AddrPort
	seen   netip.AddrPort
	err    error
}

// gather asks all STUN servers at once and returns the host candidates and the mapped addresses.
func (s *iceSide) gather(ctx context.Context, hosts []netip.AddrPort, cfg Config) ([]Candidate, error) {
	var found []Candidate
	for _, h := range hosts {
		found = append(found, Candidate{Host, h})
	}
	servers := usable(cfg.STUN, hosts)
	if len(servers) == 0 {
		if len(cfg.STUN) > 0 {
			return nil, fmt.Errorf("no STUN server of %v has the IP version of %v: %w", cfg.STUN, hosts, overlay.ErrUnreachable)
		}
		return found, nil
	}
	answered := false
	for _, m := range s.askAll(ctx, servers, cfg.GatherTimeout) {
		if m.err == nil {
			m.err = cfg.permits(m.seen.Addr())
		}
		if m.err != nil {
			cfg.Log.Debug("punch: no mapped address", "server", m.server, "err", m.err)
			continue
		}
		answered = true
		if c := (Candidate{Mapped, m.seen}); !slices.Contains(found, c) && len(found) < MaxCandidates {
			found = append(found, c)
		}
	}
	if !answered {
		return nil, s.silence(ctx, servers, cfg)
	}
	return found, nil
}

// silence returns the error for a gathering without any answer.
func (s *iceSide) silence(ctx context.Context, servers []netip.AddrPort, cfg Config) error {
	if err := s.shared.failure.Load(); err != nil {
		return fmt.Errorf("this host cannot send to STUN servers %v: %w: %w", servers, overlay.ErrUnreachable, *err)
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return fmt.Errorf("asking STUN servers %v: %w", servers, ctx.Err())
	}
	return fmt.Errorf("no STUN server of %v answered within %v: %w; does the firewall let UDP out and its answers in?",
		servers, cfg.GatherTimeout, overlay.ErrTimeout)
}

// askAll asks each server in a goroutine of its own and returns the answers that have arrived when
// the stragglers' time is up. All goroutines have ended then.
func (s *iceSide) askAll(ctx context.Context, servers []netip.AddrPort, patience time.Duration) []mapping {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	began, answers := time.Now(), make(chan mapping)
	for _, server := range servers {
		go func() {
			seen, err := s.mux.GetXORMappedAddrContext(ctx, net.UDPAddrFromAddrPort(server), patience)
			m := mapping{server: server, err: err}
			if err == nil {
				m.seen = addrPort(&net.UDPAddr{IP: seen.IP, Port: seen.Port})
			}
			answers <- m
		}()
	}
	var got []mapping
	var last *time.Timer
	for range servers {
		m := <-answers
		if m.err == nil && last == nil {
			last = time.AfterFunc(time.Since(began)+stragglers, cancel)
		}
		got = append(got, m)
	}
	if last != nil {
		last.Stop()
	}
	return got
}

// usable returns the servers of an IP version that a host address has, at most MaxCandidates.
func usable(servers, hosts []netip.AddrPort) []netip.AddrPort {
	var fit []netip.AddrPort
	for _, s := range servers {
		same := func(h netip.AddrPort) bool { return h.Addr().Is4() == s.Addr().Unmap().Is4() }
		if slices.ContainsFunc(hosts, same) && len(fit) < MaxCandidates {
			fit = append(fit, netip.AddrPortFrom(s.Addr().Unmap(), s.Port()))
		}
	}
	return fit
}

// addRemote adds the addresses to check to the agent.
func (s *iceSide) addRemote(targets []Candidate) error {
	for _, t := range targets {
		c, err := remoteCandidate(t)
		if err == nil {
			err = s.agent.AddRemoteCandidate(c)
		}
		if err != nil {
			return fmt.Errorf("candidate %v: %w", t, err)
		}
	}
	return nil
}

func remoteCandidate(t Candidate) (ice.Candidate, error) {
	addr, port := t.Addr.Addr().String(), int(t.Addr.Port())
	if t.Kind == Host {
		return ice.NewCandidateHost(&ice.CandidateHostConfig{Network: "udp", Address: addr, Port: port, Component: ice.ComponentRTP})
	}
	return ice.NewCandidateServerReflexive(&ice.CandidateServerReflexiveConfig{
		Network: "udp", Address: addr, Port: port, Component: ice.ComponentRTP,
		RelAddr: anyAddr(t.Addr.Addr()), RelPort: 0, // not known here (RFC 8839 section 5.1)
	})
}

func anyAddr(like netip.Addr) string {
	if like.Is4() {
		return netip.IPv4Unspecified().String()
	}
	return netip.IPv6Unspecified().String()
}

// list formats candidates.
func list(cs []Candidate) string {
	words := make([]string, len(cs))
	for i, c := range cs {
		words[i] = c.String()
	}
	return strings.Join(words, ", ")
}

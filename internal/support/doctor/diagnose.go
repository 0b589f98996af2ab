package doctor

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// Diagnose interprets observations. It is a pure function; the findings are in the order of the
// layers, those of this host first.
func Diagnose(o Observations) []Finding {
	var all []Finding
	all = append(all, files(o)...)
	all = append(all, denied(o)...)
	all = append(all, socket(o)...)
	all = append(all, services(o)...)
	all = append(all, session(o)...)
	all = append(all, outside(o)...)
	all = append(all, fullNAT(o)...)
	all = append(all, ipv6(o)...)
	all = append(all, datagrams(o)...)
	all = append(all, amounts(o)...)
	all = append(all, inbound(o)...)
	if o.Pair != nil {
		all = append(all, pair(*o.Pair)...)
	}
	return all
}

// denied reports what the settings deny by default, and what permits it.
func denied(o Observations) (all []Finding) {
	for _, text := range o.Denied {
		all = append(all, Finding{Layer: "local", Target: o.Settings, Status: Warning, Class: Denied, Evidence: text,
			Meaning: "this permits no one yet, which is the default", Device: "this host: " + o.Settings,
			Fix: "if it is meant to be permitted, add these lines, and reload the daemon (systemctl reload)"})
	}
	return all
}

// soon is how long before the expiry of a certificate there is a warning.
const soon = 7 * 24 * time.Hour

// files judges the certificates on this host.
func files(o Observations) []Finding {
	var all []Finding
	for _, f := range o.Local.Files {
		r := Finding{Layer: "local", Target: f.Path, Status: Passed, Class: OK,
			Evidence: fmt.Sprintf("certificate of %s, valid from %s to %s", f.Whose, stamp(f.NotBefore), stamp(f.NotAfter)),
			Meaning:  "the certificate can be used"}
		renew := "issue a new one: isthmus ca issue " + strings.Replace(f.Whose, "the grid's CA", "ROLE NAME", 1)
		switch {
		case f.Err != "":
			r.Status, r.Class, r.Evidence = Failed, Certificate, f.Err
			r.Meaning = "without it no daemon of the grid talks to this one"
			r.Fix = "put the right files where the settings say (tls.cert, tls.key, tls.ca); " + renew
		case o.Start.Before(f.NotBefore.Add(-overlay.MaxAhead)):
			r.Status, r.Class = Failed, Clock
			r.Evidence += fmt.Sprintf("; this host's clock says %s", stamp(o.Start))
			r.Meaning = "certificates are not issued ahead of time: " + overlay.ClocksDiffer("this host", "its issuer", f.NotBefore.Sub(o.Start))
			r.Device, r.Fix = "this host: its clock", setClocks
		case o.Start.After(f.NotAfter.Add(overlay.MaxLate)):
			r.Status, r.Class = Failed, Certificate
			r.Evidence += fmt.Sprintf("; this host's clock says %s", stamp(o.Start))
			r.Meaning = "the certificate has expired, or else " + overlay.ClocksDiffer("this host", "its issuer", o.Start.Sub(f.NotAfter))
			r.Fix = "if this host's clock is right, " + renew
		case o.Start.After(f.NotAfter):
			r.Status, r.Class, r.Fix = Warning, Expiring, "if this host's clock is right, "+renew
			r.Meaning = fmt.Sprintf("the certificate has expired, and counts for %v more; or else %s", f.NotAfter.Add(overlay.MaxLate).Sub(o.Start).Round(time.Second),
				overlay.ClocksDiffer("this host", "its issuer", o.Start.Sub(f.NotAfter)))
		case f.NotAfter.Sub(o.Start) < soon && f.NotAfter.Sub(f.NotBefore) > 2*soon:
			r.Status, r.Class, r.Meaning, r.Fix = Warning, Expiring, "the certificate expires within a week", renew
		}
		all = append(all, r)
	}
	return all
}

// socket judges the path from a process to the helper.
func socket(o Observations) []Finding {
	l := o.Local
	if l.Socket == "" {
		return nil
	}
	r := Finding{Layer: "local", Target: l.Socket, Status: Passed, Class: OK,
		Evidence: fmt.Sprintf("a helper accepts connections on the socket (%s)", l.SocketMode),
		Meaning:  "processes of this user reach the helper"}
	if l.SocketErr == "" {
		return []Finding{r}
	}
	r.Status, r.Class, r.Evidence, r.Device = Failed, HelperSocket, l.SocketErr, "this host"
	switch {
	case l.SocketAbsent:
		r.Meaning = "no helper runs on this node, or it runs with another socket"
		r.Fix = "start the helper (systemctl start isthmus-helper), or correct socket in the settings and ISTHMUS_HELPER in jobs"
	case l.SocketDenied:
		r.Evidence += fmt.Sprintf(" (mode %s)", l.SocketMode)
		r.Meaning = "the helper runs, and this user may not use its socket or enter its folder"
		r.Fix = "set public: true in the helper's settings, or run as the helper's user; check the folder's mode"
	case l.SocketSilent:
		r.Meaning = "the helper accepts connections and does not answer: it is stopped, or overloaded"
		r.Fix = "look at its state (systemctl status isthmus-helper) and its log, and restart it if it hangs"
	default:
		r.Meaning = "the socket exists but no process accepts on it: the helper has ended"
		r.Fix = "start the helper and read its log"
	}
	return []Finding{r}
}

// services judges the paths to the daemons above. While one of several is reachable, the failure of
// another is only a warning.
func services(o Observations) []Finding {
	reached := slices.ContainsFunc(o.Services, func(s Service) bool { return s.Hello.Got })
	var all []Finding
	for _, s := range o.Services {
		found := service(o, s)
		for i := range found {
			if f := &found[i]; f.Status == Failed && reached && !s.Hello.Got {
				f.Status = Warning
				f.Meaning += "; another broker is reached, so the site works, and would stand still without that one"
			}
		}
		all = append(all, found...)
	}
	return all
}

// service judges the layers to one daemon, up to the first that fails.
func service(o Observations, s Service) []Finding {
	target := s.What + " " + s.Address
	first := target
	if s.Via != "" {
		first = "HTTP proxy " + s.Via + " on the way to " + target
	}
	var all []Finding
	add := func(f Finding) bool { // reports whether to judge the next layer
		if f.Target == "" {
			f.Target = target
		}
		all = append(all, f)
		return f.Status != Failed
	}
	f := resolution(s)
	f.Target = first
	if !add(f) {
		return all
	}
	f = connection("TCP", s.Connect)
	f.Target = first
	if s.Via == "" && f.Class == TCPDropped && !o.Helper {
		f.Fix += "; if only an HTTP proxy leads out of this site, name it in the settings (http_proxy.address)"
	}
	if !add(f) {
		return all
	}
	if s.Via != "" && !add(tunnelled(s)) {
		return all
	}
	for _, f := range handshake(o, s) {
		if !add(f) {
			return all
		}
	}
	if s.TLS.Done {
		add(hello(s))
	}
	return all
}

func resolution(s Service) Finding {
	r := s.Resolve
	f := Finding{Layer: "name", Status: Passed, Class: OK}
	switch {
	case r.Err != "":
		f.Status, f.Class, f.Evidence = Failed, Name, fmt.Sprintf("%s (after %s)", r.Err, ms(r.Took))
		if r.NotFound {
			f.Meaning = fmt.Sprintf("the name %q is written wrongly, or this host's name servers do not know it", r.Name)
		} else {
			f.Meaning = fmt.Sprintf("the name %q could not be looked up: the name servers do not answer, or a firewall is between", r.Name)
		}
		f.Device = "this host's name servers (/etc/resolv.conf) or /etc/hosts"
		f.Fix = "correct the name in the settings, add it to /etc/hosts or DNS, or give an address in its place"
	case r.Name == "":
		f.Evidence, f.Meaning = "the settings give an address", "no name needs to be looked up"
	default:
		f.Evidence, f.Meaning = fmt.Sprintf("%s is %s (after %s)", r.Name, list(r.Addrs), ms(r.Took)), "the name has an address"
	}
	return f
}

// connection judges an attempt to connect.
func connection(layer string, c Connection) Finding {
	f := Finding{Layer: layer, Status: Failed, Target: c.To.String(),
		Fix: fmt.Sprintf("ask for the rule: TCP from this host to %s port %d (isthmus doctor --firewall-request)", c.To.Addr(), c.To.Port())}
	switch c.Outcome {
	case Connected:
		f.Status, f.Class, f.Fix = Passed, OK, ""
		f.Evidence, f.Meaning = fmt.Sprintf("connected in %s, from %s", ms(c.Took), c.From.Addr()), "TCP passes"
	case Silent:
		f.Class = TCPDropped
		f.Evidence = fmt.Sprintf("no answer to a SYN to %s within %s%s", c.To, ms(c.Took), route(c.Hops))
		f.Meaning = "a firewall drops the SYN or its answer, or the host is down; these look the same from here"
		f.Device = dropper(c.Hops)
	case Reset:
		f.Class = TCPRefused
		f.Evidence = fmt.Sprintf("a reset from %s after %s", c.To, ms(c.Took))
		f.Meaning = "the host is up and nothing listens there (the daemon is down, or the port is wrong), or a firewall on the path sends the reset; the two cannot be distinguished"
		f.Device = fmt.Sprintf("most likely %s itself, since firewalls more often drop or answer with ICMP", c.To.Addr())
		if c.Replier.IsValid() {
			f.Evidence = fmt.Sprintf("%s sent ICMP %s after %s", c.Replier, c.Reply, ms(c.Took))
			f.Meaning, f.Device = "a firewall refuses the connection", fmt.Sprintf("%s: it sent the error", c.Replier)
		}
		f.Fix = "start the daemon there and check the port; if it runs, " + f.Fix
	case ICMPError:
		f.Class = Unreachable
		f.Evidence = fmt.Sprintf("%s (after %s)", c.Err, ms(c.Took))
		f.Meaning = "the network reports that the address is unreachable; a rejecting firewall reports the same"
		if c.Replier.IsValid() {
			f.Evidence = fmt.Sprintf("%s sent ICMP %s after %s", c.Replier, c.Reply, ms(c.Took))
			f.Device = fmt.Sprintf("%s: it sent the error", c.Replier)
		}
		if strings.Contains(c.Reply, "prohibited") {
			f.Meaning = "a firewall refuses the connection"
		}
	case Routeless:
		f.Class = NoRoute
		f.Evidence = fmt.Sprintf("%s, at once", c.Err)
		f.Meaning = "this host's own routing table has no route to the address; no packet was sent"
		f.Device = "this host: its routes"
		f.Fix = "give this host a route, or make its site gateway_only, so that the gateway carries its data"
	case NoPermit:
		f.Class = Unreachable
		f.Evidence, f.Device = c.Err, "this host: its own firewall or its security module"
		f.Meaning = "this host does not let this program connect"
	default:
		f.Status, f.Class, f.Fix, f.Meaning = NotChecked, OK, "", "not checked: the run's time was over"
	}
	return f
}

// dropper names the device that most likely drops, from the routers that still answered.
func dropper(hops []Hop) string {
	if len(hops) == 0 {
		return "unknown: no router on the path reports expired packets; perhaps this host's own firewall drops them before they leave"
	}
	last := hops[len(hops)-1]
	if last.TTL == 1 {
		return fmt.Sprintf("most likely %s, this host's gateway: it still answers for a packet that expires there, and no router behind it does", last.Addr)
	}
	return fmt.Sprintf("%s or what stands behind it: it is the last router (%d away) that answers for a packet that ends there, so this site's gateway lets the SYN out", last.Addr, last.TTL)
}

func route(hops []Hop) string {
	if len(hops) == 0 {
		return "; no router answered one with a short life"
	}
	var names []string
	for _, h := range hops {
		names = append(names, fmt.Sprintf("%d: %s", h.TTL, h.Addr))
	}
	return "; routers that answered one with a short life: " + strings.Join(names, ", ")
}

func tunnelled(s Service) Finding {
	f := Finding{Layer: "HTTP proxy", Status: Passed, Class: OK, Target: "HTTP proxy " + s.Via + " on the way to " + s.What + " " + s.Address,
		Evidence: "the proxy opened a tunnel to " + s.Address, Meaning: "CONNECT is allowed"}
	if s.Tunnel.Open {
		return f
	}
	return refusedTunnel(f, s.Via, s.Address, s.Tunnel)
}

func refusedTunnel(f Finding, via, address string, t Tunnel) Finding {
	f.Status, f.Class, f.Evidence = Failed, HTTPProxy, t.Err
	f.Device = fmt.Sprintf("the HTTP proxy %s: these are its words", via)
	f.Meaning = "the proxy does not lead there"
	f.Fix = fmt.Sprintf("ask the proxy's admin to allow CONNECT to %s", address)
	switch {
	case strings.Contains(t.Err, "Basic is the only scheme"):
		f.Meaning = "the proxy requires credentials of a kind that the daemons do not have: they have Basic only"
		f.Fix = "ask the proxy's admin to accept Basic credentials, or to let this host through without any"
	case strings.Contains(t.Err, "407") || strings.Contains(t.Err, "credentials"):
		f.Meaning = "the proxy requires credentials and did not accept those it got"
		f.Fix = "set http_proxy.user and http_proxy.password_file"
	case strings.Contains(t.Err, "not HTTP"):
		f.Meaning = "the service there is not an HTTP proxy"
		f.Fix = "correct http_proxy.address in the settings"
	case strings.Contains(t.Err, "cannot connect") || strings.Contains(t.Err, "no answer from there"):
		f.Meaning = "the proxy allows the tunnel and cannot reach the other end: that host is down, or a firewall stands between the proxy and it"
		f.Device = "what lies behind the HTTP proxy " + via
	}
	return f
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func ms(d time.Duration) string {
	if d < 10*time.Millisecond {
		return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
	}
	return fmt.Sprintf("%d ms", d.Milliseconds())
}

func list(addrs []netip.Addr) string {
	var texts []string
	for _, a := range addrs {
		texts = append(texts, a.String())
	}
	return strings.Join(texts, ", ")
}

package doctor

import (
	"fmt"
	"strings"
)

// datagrams judges the requests to STUN servers.
func datagrams(o Observations) []Finding {
	d := o.UDP
	f := Finding{Layer: "UDP", Target: "STUN servers", Status: NotChecked, Class: OK}
	switch {
	case o.Helper && o.profile().GatewayOnly:
		return nil
	case o.Pair != nil && !o.Session.Tried:
		return nil
	case len(d.Servers) == 0 && o.Session.Listed:
		f.Meaning = "not checked: the grid offers no STUN server"
		return []Finding{f}
	case len(d.Servers) == 0:
		f.Meaning = "not checked: where the grid's STUN servers are is learned from a session with the broker, and there is none"
		return []Finding{f}
	case len(d.Seen) == 0:
		return []Finding{silentUDP(d)}
	}
	return append([]Finding{mapping(o)}, missing(d)...)
}

func silentUDP(d Datagrams) Finding {
	f := Finding{Layer: "UDP", Target: servers(d), Status: Warning, Class: UDPBlocked,
		Evidence: fmt.Sprintf("none of %d STUN servers answered within %s", len(d.Servers), ms(d.Waited)),
		Meaning:  "no datagrams get out, or no answers back in; servers that are all down would look the same",
		Device:   "unknown: silence does not tell who drops; with several servers silent at once, most likely this site's gateway",
		Fix:      "nothing, if this is meant: what goes by TCP remains (dialling, simultaneous open, traversing, relays). For hole punching ask for the rule that --firewall-request prints"}
	for _, s := range d.Servers {
		if e := d.Errs[s]; e != "" {
			f.Evidence += fmt.Sprintf("; to %s: %s", s, e)
			if strings.Contains(e, "operation not permitted") {
				f.Meaning, f.Device = "this host's own firewall refuses to send datagrams", "this host: its own firewall (the system call failed)"
			}
		}
	}
	return f
}

// missing names servers that did not answer while others did.
func missing(d Datagrams) []Finding {
	var all []Finding
	for _, s := range d.Servers {
		if _, ok := d.Seen[s]; ok {
			continue
		}
		all = append(all, Finding{Layer: "UDP", Target: s.String(), Status: Warning, Class: UDPBlocked,
			Evidence: strings.TrimSuffix(fmt.Sprintf("no answer within %s, while others answered; %s", ms(d.Waited), d.Errs[s]), "; "),
			Meaning:  "this server is down, or its own firewall is closed: datagrams do leave this site",
			Device:   "most likely " + s.Addr().String(),
			Fix:      "look at that daemon's stun_listen and its firewall"})
	}
	return all
}

package doctor

import (
	"fmt"
	"strings"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// handshake judges TLS: whether full-size segments pass, and whose certificate was presented.
func handshake(o Observations, s Service) []Finding {
	h := s.TLS
	f := Finding{Layer: "TLS", Status: Passed, Class: OK, Meaning: "no device on the path decrypts the traffic, and the certificate is the grid's"}
	switch {
	case !h.Tried:
		f.Status, f.Meaning = NotChecked, "not checked: a layer below it failed"
		return []Finding{f}
	case h.Silent:
		return []Finding{stalled(s)}
	case len(h.Chain) > 0:
		judgeChain(&f, o.Start, s)
	default:
		brokenTLS(&f, h)
	}
	if f.Status != Passed || !h.Done {
		if f.Status == Passed {
			brokenTLS(&f, h)
		}
		return []Finding{f}
	}
	return []Finding{f, segments(s)}
}

// brokenTLS judges a handshake that failed for another reason than its certificates.
func brokenTLS(f *Finding, h Handshake) {
	f.Status, f.Class, f.Evidence = Failed, TLSBroken, fmt.Sprintf("%s (after %s)", h.Err, ms(h.Took))
	f.Meaning = "the service there does not speak TLS or speaks another version, or a device on the path cut the connection after its first bytes"
	f.Fix = "check that the address is that of the daemon; if it is, ask for a rule that lets TLS 1.3 through uninspected"
	if strings.Contains(h.Err, "first record does not look like a TLS handshake") {
		f.Meaning = "the service there does not speak TLS: it is another service, or a device on the path answers with a page of text"
	}
	if strings.Contains(h.Err, "connection reset") {
		f.Meaning = "the connection was made, and reset when TLS began: a firewall that looks into connections does so, and so does a service that is no daemon of the grid"
	}
}

// judgeChain judges the presented certificates.
func judgeChain(f *Finding, now time.Time, s Service) {
	leaf := s.TLS.Chain[0]
	f.Evidence = fmt.Sprintf("%s, certificate of %q issued by %q, valid from %s to %s", orUnknown(s.TLS.Version), leaf.Subject, leaf.Issuer, stamp(leaf.NotBefore), stamp(leaf.NotAfter))
	role, _, _ := strings.Cut(leaf.Identity, " ")
	switch {
	case !leaf.OfGrid && leaf.Identity != "":
		f.Status, f.Class = Failed, Certificate
		f.Meaning = fmt.Sprintf("this is %s of a grid with another CA, or this host holds an old CA certificate", leaf.Identity)
		f.Fix = "compare tls.ca here and there; both must be the certificate that isthmus ca init made for this grid"
	case !leaf.OfGrid:
		f.Status, f.Class = Failed, Intercepted
		f.Meaning = "the certificate is not the grid's: a device in between opens TLS and shows its own, or the address leads to a server that is no daemon of the grid"
		f.Device = fmt.Sprintf("who holds a certificate issued by %q", leaf.Issuer)
		f.Fix = fmt.Sprintf("ask for an exception from TLS inspection for %s; if the issuer is no inspection device of yours, correct the address", s.Address)
	case role != s.What:
		f.Status, f.Class = Failed, Settings
		f.Meaning = fmt.Sprintf("this is %s, and the settings want a %s there", leaf.Identity, s.What)
		f.Fix = "correct the address in the settings"
	case now.Before(leaf.NotBefore.Add(-overlay.MaxAhead)):
		f.Status, f.Class = Failed, Clock
		f.Evidence += fmt.Sprintf("; this host's clock says %s", stamp(now))
		f.Meaning = "certificates are not issued ahead of time: " + overlay.ClocksDiffer("this host", "its issuer", leaf.NotBefore.Sub(now))
		f.Device, f.Fix = "this host: its clock", setClocks
	case now.After(leaf.NotAfter.Add(overlay.MaxLate)):
		f.Status, f.Class = Failed, Certificate
		f.Evidence += fmt.Sprintf("; this host's clock says %s", stamp(now))
		f.Meaning = "the other end's certificate has expired, or else " + overlay.ClocksDiffer("this host", "its issuer", now.Sub(leaf.NotAfter))
		f.Device, f.Fix = leaf.Identity, fmt.Sprintf("issue a new one for it (isthmus ca issue %s), if this host's clock is right", leaf.Identity)
	}
}

func orUnknown(version string) string {
	if version == "" {
		return "TLS hand-shake not ended"
	}
	return version
}

// stalled judges a handshake in which nothing arrived after the connect.
func stalled(s Service) Finding {
	f := Finding{Layer: "TLS", Status: Failed, Class: TLSBroken,
		Evidence: fmt.Sprintf("connected, then no answer to the TLS hello within %s", ms(s.TLS.Took)),
		Meaning:  "something in between drops what follows the connection, or the program there hangs; these look the same from here",
		Fix:      "look at the daemon's log for this connection; ask for a rule that lets TLS to " + s.Address + " through uninspected"}
	best := 0
	for _, size := range s.Segment.Passed {
		best = max(best, size)
	}
	whole := false
	for _, size := range s.Segment.Passed {
		whole = whole || size == 0
	}
	switch {
	case whole:
		f.Evidence += "; a second try went through"
		f.Meaning = "packets are lost on the way, or the program there was busy"
	case best > 0:
		f.Layer, f.Class = "MTU", MTU
		f.Evidence += fmt.Sprintf("; with segments of at most %d bytes it goes on, with %s it stalls (the path's MTU as this host knows it: %d)", best, sizes(s.Segment.Stalled, best), s.Segment.PathMTU)
		f.Meaning, f.Device, f.Fix = blackHole(best + 40)
	case len(s.Segment.Stalled) > 0:
		f.Evidence += fmt.Sprintf("; neither with segments of %s", sizes(s.Segment.Stalled, 0))
	}
	return f
}

// blackHole describes a path MTU black hole; mtu, if not 0, is a size that passes.
func blackHole(mtu int) (meaning, device, fix string) {
	smaller := "a smaller MTU"
	if mtu > 0 {
		smaller = fmt.Sprintf("an MTU of %d or less", mtu)
	}
	return "packets of the size of this host's MTU are lost on the path, and no router reports it (ICMP \"fragmentation needed\" is filtered): a path MTU black hole",
		"a router or tunnel on the way with a smaller MTU, and a firewall that drops its ICMP message",
		"let ICMP type 3 code 4 in (IPv6: type 2), clamp the MSS on the gateway, or give this host " + smaller
}

func sizes(all []int, above int) string {
	var texts []string
	for _, n := range all {
		if n == 0 {
			texts = append(texts, "full size")
		} else if n > above {
			texts = append(texts, fmt.Sprint(n))
		}
	}
	return strings.Join(texts, ", ")
}

// segments judges from a complete handshake that full segments pass: both hellos are longer than
// one.
func segments(s Service) Finding {
	f := Finding{Layer: "MTU", Status: Passed, Class: OK, Evidence: "a hand-shake of more than one full segment each way went through",
		Meaning: "full-size packets pass"}
	if s.Segment.Most > 0 {
		f.Evidence = fmt.Sprintf("the hand-shake, in segments of at most %d bytes each way, went through", s.Segment.Most)
		f.Meaning = "the control connection keeps to small packets, and these pass"
		return f
	}
	if s.Segment.PathMTU > 0 {
		f.Evidence += fmt.Sprintf("; path MTU %d", s.Segment.PathMTU)
	}
	return f
}

// hello judges the first frame of the control protocol.
func hello(s Service) Finding {
	h := s.Hello
	f := Finding{Layer: "hand-shake", Status: Failed}
	switch {
	case h.Got && (h.Newest < h.OwnOldest || h.Oldest > h.OwnNewest):
		f.Class = Version
		f.Evidence = fmt.Sprintf("%s there speaks control versions %d to %d, this one %d to %d", h.Software, h.Oldest, h.Newest, h.OwnOldest, h.OwnNewest)
		f.Meaning, f.Fix = "the two ends have no version in common", "upgrade the older one"
	case h.Got:
		f.Status, f.Class = Passed, OK
		f.Evidence, f.Meaning = fmt.Sprintf("%s, control versions %d to %d", h.Software, h.Oldest, h.Newest), "the other end speaks this version and accepts this certificate"
	case h.Refusal != "":
		f.Evidence = fmt.Sprintf("%s: %s", h.RefusedBy, h.Refusal)
		f.Class, f.Meaning, f.Fix = classOfRefusal(h.Refusal)
		f.Device = h.RefusedBy + ": these are its words"
	default:
		f.Class, f.Evidence = Refused, h.Err
		f.Meaning = "the other end closed the connection without a reason: it is ending, or overloaded"
		f.Fix = "look at its log"
	}
	return f
}

// classOfRefusal classifies a refusal by its text.
func classOfRefusal(words string) (c Class, meaning, fix string) {
	switch {
	case strings.Contains(words, "is not valid before"):
		return Clock, "by the other end's clock this daemon's certificate is not valid yet: the clocks of the other end and its issuer differ", setClocks
	case strings.Contains(words, "expired"):
		return Certificate, "the other end finds this daemon's certificate expired, or else its clock and that of the issuer differ", "issue a new one: isthmus ca issue ROLE NAME"
	case strings.Contains(words, "not issued by this grid's CA"):
		return Certificate, "the other end belongs to a grid with another CA", "compare tls.ca here and there"
	case strings.Contains(words, "speaks control versions"):
		return Version, "the two ends have no version in common", "upgrade the older one"
	}
	return Refused, "the other end refused this daemon; its message says why", "follow its message, or look at its log"
}

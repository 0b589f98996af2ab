package frontal

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
)

// enrolling connects to the frontal as one that has no certificate yet.
func enrolling(t *testing.T, r *rig) *tls.Conn {
	t.Helper()
	d := &tls.Dialer{Config: &tls.Config{NextProtos: []string{control.EnrolALPN}, InsecureSkipVerify: true}}
	c, err := d.DialContext(t.Context(), "tcp", r.at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	return c.(*tls.Conn)
}

// Whoever wants to enrol speaks with the broker, and with nobody else; not for ever, and not while there is
// none.
func TestPassesEnrolments(t *testing.T) {
	r := newRig(t, nil)
	c := enrolling(t, r)
	if name := c.ConnectionState().PeerCertificates[0].Subject.CommonName; !strings.HasPrefix(name, "broker ") {
		t.Errorf("the other end is %q", name)
	}
	if _, err := c.Write([]byte("a request")); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 9)
	if _, err := io.ReadFull(c, b); err != nil || string(b) != "a request" {
		t.Errorf("%q, %v", b, err)
	}
	c.CloseWrite()
	if _, err := c.Read(b); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v", err)
	}
	c.Close()
	r.until("the first one is over", func() bool { return strings.Contains(r.log.String(), "enrolment passed on") })

	// One that takes the frontal for a way to send data is cut off.
	c = enrolling(t, r)
	go io.Copy(io.Discard, c) // ends with the connection
	var err error
	for sent := 0; err == nil; {
		var n int
		n, err = c.Write(bytes.Repeat([]byte{0}, 1<<16))
		if sent += n; sent > 64<<20 {
			t.Fatalf("%d bytes passed", sent)
		}
	}

	r.broker.stop()
	d := &tls.Dialer{Config: &tls.Config{NextProtos: []string{control.EnrolALPN}, InsecureSkipVerify: true}}
	if c, err := d.DialContext(t.Context(), "tcp", r.at); err == nil {
		c.Close()
		t.Error("connected without a broker")
	}
	if log := r.log.String(); !strings.Contains(log, "byte limit") || !strings.Contains(log, "enrolment not passed on") {
		t.Errorf("the log says\n%s", log)
	}
}

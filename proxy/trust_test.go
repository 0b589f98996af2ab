package proxy

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/testkit"
	"github.com/isthmus-grid/isthmus/wire"
)

// A revoked proxy ends what it carries and accepts nothing more, and serves again once it has a
// valid certificate.
func TestDisown(t *testing.T) {
	r := start(t, Settings{})
	a, b := r.link()
	echoes(t, a, b)
	if n := r.Disown(fmt.Errorf("%w: list 7", control.ErrRevoked)); n != 1 {
		t.Errorf("%d links ended", n)
	}
	a.SetReadDeadline(time.Now().Add(30 * time.Second))
	if _, err := io.Copy(io.Discard, a); err != nil && strings.Contains(err.Error(), "timeout") {
		t.Errorf("the link lives: %v", err)
	}
	r.until("the link's end", func(st Status) bool { return st.Links == 0 })
	c, d := r.link()
	if no := testkit.Refused(r.t, c); no.Code != wire.CodeForbidden || !strings.Contains(no.Text, "proxy p1: not permitted: revoked: list 7") {
		t.Errorf("refused with %+v", no)
	}
	testkit.Refused(r.t, d)
	r.Disown(nil)
	g, h := r.link()
	echoes(t, g, h)
}

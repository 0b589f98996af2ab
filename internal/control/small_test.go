package control

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"
)

// TestSmallNext: after an error that suggests dropped large packets come small ones, and after
// small ones large ones again.
func TestSmallNext(t *testing.T) {
	late := fmt.Errorf("frontal at x: %w within 10s", errStalled)
	silent, stopped := fmt.Errorf("ended: %w", &SilentError{}), fmt.Errorf("ended: %w", &SilentError{Alive: true})
	for _, c := range []struct {
		small bool
		err   error
		want  bool
	}{
		{false, late, true}, {false, silent, true}, {false, stopped, false},
		{false, errors.New("refused"), false}, {false, nil, false},
		{false, stalled(t.Context(), fmt.Errorf("TLS: %w", io.EOF)), true},
		{false, stalled(t.Context(), fmt.Errorf("waiting for the hello: %w", io.ErrUnexpectedEOF)), true},
		{false, stalled(t.Context(), fmt.Errorf("TLS: %w", &net.OpError{Op: "read", Err: syscall.ECONNRESET})), true},
		{false, stalled(t.Context(), fmt.Errorf("TLS: %w", tls.AlertError(42))), false},
		{true, late, false}, {true, silent, false},
	} {
		if got := smallNext(c.small, c.err); got != c.want {
			t.Errorf("after small packets %v, and %v: small ones %v, want %v", c.small, c.err, got, c.want)
		}
	}
}

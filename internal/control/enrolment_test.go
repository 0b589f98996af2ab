package control

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"testing"
	"time"
)

// What a client asks for is known without an answer, and nothing of what it has sent is lost.
func TestAsksToEnrol(t *testing.T) {
	for protocol, want := range map[string]bool{EnrolALPN: true, alpn: false, "": false} {
		client, server := net.Pipe()
		defer client.Close()
		defer server.Close()
		cfg := &tls.Config{InsecureSkipVerify: true}
		if protocol != "" {
			cfg.NextProtos = []string{protocol}
		}
		sent := make(chan []byte, 1)
		go func() { // ends with the pipe
			tls.Client(&firstWrite{Conn: client, sent: sent}, cfg).Handshake()
		}()
		again, enrols := asksToEnrol(t.Context(), server)
		if enrols != want {
			t.Errorf("%q: %v", protocol, enrols)
		}
		first := <-sent
		b := make([]byte, len(first))
		if _, err := io.ReadFull(again, b); err != nil || string(b) != string(first) {
			t.Errorf("%q: %x (%v), want %x", protocol, b, err, first)
		}
	}
	// What is no TLS at all does not enrol, and is left for others to judge.
	client, server := net.Pipe()
	defer client.Close()
	go client.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
	again, enrols := asksToEnrol(t.Context(), server)
	b := make([]byte, 5)
	if _, err := io.ReadFull(again, b); enrols || err != nil || string(b) != "GET /" {
		t.Errorf("%v, %q, %v", enrols, b, err)
	}
	// A client that says nothing is not waited for without a bound.
	silent, server := net.Pipe()
	defer silent.Close()
	over, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, enrols := asksToEnrol(over, server); enrols {
		t.Error("a silent client enrols")
	}
}

// firstWrite tells what was written first.
type firstWrite struct {
	net.Conn
	sent chan []byte
}

func (w *firstWrite) Write(p []byte) (int, error) {
	select {
	case w.sent <- append([]byte(nil), p...):
	default:
	}
	return w.Conn.Write(p)
}

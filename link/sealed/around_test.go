package sealed

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
)

// Plain text that precedes the server's part of the handshake is read in Between; the handshake
// continues after it.
func TestBetween(t *testing.T) {
	k := newKey(t, "demo")
	a, b := dial(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	server := make(chan outcome, 1)
	go func() {
		b.Write([]byte("good day"))
		c, err := Server(ctx, b, member(t, k, 1), nil, []byte("early"), Around{Between: func() error { return errors.New("a server reads first") }})
		server <- outcome{c, err}
	}()
	heard := make([]byte, len("good day"))
	x, err := Client(ctx, a, member(t, k, 0), nil, Around{Between: func() error {
		_, err := io.ReadFull(a, heard)
		return err
	}})
	y := <-server
	if err != nil || y.err != nil {
		t.Fatal(err, y.err)
	}
	got := make([]byte, len("early"))
	if _, err := io.ReadFull(x, got); err != nil || string(got) != "early" || string(heard) != "good day" {
		t.Errorf("heard %q, then read %q, %v", heard, got, err)
	}
}

// The handshake returns the error of a function of Around unchanged, and conn is closed.
func TestAroundEnds(t *testing.T) {
	k := newKey(t, "demo")
	refused := errors.New("refused in plain text")
	stray := func(rest io.Reader, want string) func([]byte) error {
		return func(head []byte) error {
			got := string(head)
			if b, err := io.ReadAll(rest); err != nil || got+string(b) != want {
				return errors.Join(errors.New(got+string(b)), err)
			}
			return refused
		}
	}
	for _, server := range []bool{false, true} {
		for _, between := range []bool{false, true} {
			if server && between {
				continue
			}
			a, b := dial(t)
			go func() { // ends with b
				b.Write([]byte("no, thank you"))
				b.(interface{ CloseWrite() error }).CloseWrite()
			}()
			around := Around{Stray: stray(a, "no, thank you")}
			if between {
				around.Between = func() error { return refused }
			}
			var err error
			if server {
				_, err = Server(t.Context(), a, member(t, k, 0), nil, nil, around)
			} else {
				_, err = Client(t.Context(), a, member(t, k, 0), nil, around)
			}
			if err != refused {
				t.Errorf("server %v, between %v: %v", server, between, err)
			}
			if _, err := a.Write([]byte("x")); err == nil {
				t.Error("the connection was left open")
			}
		}
	}
}

// Unrecognised stray data is a TLS error.
func TestUnknownStray(t *testing.T) {
	a, b := dial(t)
	b.Write([]byte("HTTP/1.1 400 Bad Request\r\n"))
	_, err := Client(t.Context(), a, member(t, newKey(t, "demo"), 0), nil, Around{Stray: func([]byte) error { return nil }})
	if !errors.Is(err, ErrPlain) || !strings.Contains(err.Error(), "48 54 54 50 2f") {
		t.Errorf("got %v", err)
	}
}

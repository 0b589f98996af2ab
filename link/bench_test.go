package link

import (
	"context"
	"io"
	"net"
	"testing"

	"github.com/isthmus-grid/isthmus/overlay"
)

// benchPair returns two ends over one TCP connection: links, encrypted links, or plain sockets.
func benchPair(b *testing.B, kind string) (net.Conn, net.Conn) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer ln.Close()
	near, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	far, err := ln.Accept()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { near.Close(); far.Close() })
	if kind == "bare" {
		return near, far
	}
	seal := kind == "sealed"
	met := make(chan *Link, 1)
	go func() {
		l, err := Establish(context.Background(), overlay.Carrier{Conn: far, Seal: seal}, identity(b, 2), nil, admitAll)
		if err != nil {
			b.Error(err)
		}
		met <- l
	}()
	peer := identity(b, 2).Process
	l, err := Establish(context.Background(), overlay.Carrier{Conn: near, Seal: seal}, identity(b, 1), &peer, admitAll)
	if err != nil {
		b.Fatal(err)
	}
	return l.Conn, (<-met).Conn
}

// BenchmarkPingPong is a round trip of n bytes, over a link, over an encrypted one and over the
// plain socket.
func BenchmarkPingPong(b *testing.B) {
	for _, size := range []struct {
		name string
		n    int
	}{{"1B", 1}, {"64KiB", 64 << 10}, {"1MiB", 1 << 20}} {
		for _, kind := range []string{"link", "sealed", "bare"} {
			b.Run(size.name+"/"+kind, func(b *testing.B) {
				near, far := benchPair(b, kind)
				go func() {
					buf := make([]byte, size.n)
					for {
						if _, err := io.ReadFull(far, buf); err != nil {
							return
						}
						if _, err := far.Write(buf); err != nil {
							return
						}
					}
				}()
				buf := make([]byte, size.n)
				b.ReportAllocs()
				b.SetBytes(int64(2 * size.n))
				for b.Loop() {
					if _, err := near.Write(buf); err != nil {
						b.Fatal(err)
					}
					if _, err := io.ReadFull(near, buf); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

package mpilib

import (
	"context"
	"math/rand/v2"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// slowness forwards connections in pieces of different sizes, each after a delay: mostly none,
// often some tens of microseconds, occasionally milliseconds. Each connection and direction has its
// own delays.
type slowness struct {
	ctx     context.Context
	running sync.WaitGroup
}

// newSlowness returns a slowness that ends with ctx.
func newSlowness(ctx context.Context) *slowness { return &slowness{ctx: ctx} }

// wait returns when all goroutines of s have ended; ctx must be done.
func (s *slowness) wait() { s.running.Wait() }

// before forwards connections to addr, and returns the address at which it listens.
func (s *slowness) before(t *testing.T, network, addr string) string {
	at := "127.0.0.1:0"
	if network == "unix" {
		at = filepath.Join(filepath.Dir(addr), "slow-"+filepath.Base(addr))
	}
	ln, err := net.Listen(network, at)
	if err != nil {
		t.Fatal(err)
	}
	context.AfterFunc(s.ctx, func() { ln.Close() })
	s.running.Go(func() {
		for {
			near, err := ln.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial(network, addr)
			if err != nil {
				near.Close()
				continue
			}
			s.join(near, far)
		}
	})
	return ln.Addr().String()
}

// join copies bytes in both directions until both have ended, or s has.
func (s *slowness) join(a, b net.Conn) {
	stop := context.AfterFunc(s.ctx, func() {
		a.Close()
		b.Close()
	})
	s.running.Go(func() {
		var both sync.WaitGroup
		both.Go(func() { s.carry(a, b) })
		both.Go(func() { s.carry(b, a) })
		both.Wait()
		a.Close()
		b.Close()
		stop()
	})
}

func (s *slowness) carry(to, from net.Conn) {
	buf := make([]byte, 256<<10)
	for {
		most := len(buf) // sometimes less
		if rand.IntN(2) == 0 {
			most = 1 + rand.IntN(1<<(1+rand.IntN(18)))
		}
		n, err := from.Read(buf[:most])
		if n > 0 {
			s.pause()
			if _, err := to.Write(buf[:n]); err != nil {
				from.Close() // the reader is gone
				return
			}
		}
		if err != nil {
			to.(interface{ CloseWrite() error }).CloseWrite()
			return
		}
	}
}

// pause sleeps: delays are the only purpose of this file.
func (s *slowness) pause() {
	var d time.Duration
	switch k := rand.IntN(100); {
	case k < 70:
		return
	case k < 99:
		d = time.Duration(rand.IntN(50_000))
	default:
		d = time.Duration(rand.IntN(3_000_000))
	}
	wake := time.NewTimer(d)
	defer wake.Stop()
	select {
	case <-wake.C:
	case <-s.ctx.Done():
	}
}

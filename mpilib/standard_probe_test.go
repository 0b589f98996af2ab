package mpilib

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
)

// 3.8.1: the next receive with the source and tag of a probe's status gets the message that the
// probe found. Iprobe returns false if no message matches.
func TestStandard_3_8_1_Probe(t *testing.T) {
	parallel(t)
	for _, ranks := range worldSizes(1) {
		eachSize(t, ranks, func(ctx context.Context, c *Comm, n int) error {
			out := []*Request{Isend(c, pattern(n, c.Rank()), 0, c.Rank()), Isend(c, pattern(n, c.Rank()+10), 0, c.Rank())}
			for i := 0; c.Rank() == 0 && i < 2*ranks; i++ {
				st, err := c.Probe(ctx, AnySource, AnyTag)
				if err != nil || st.Tag != st.Source || st.Bytes != n || st.Count != n {
					return fmt.Errorf("Probe: %+v, %v", st, err)
				}
				again, here, err := c.Iprobe(st.Source, st.Tag)
				if !here || again != st || err != nil {
					return fmt.Errorf("Iprobe: %+v, %t, %v, Probe returned %+v", again, here, err, st)
				}
				if st, here, err := c.Iprobe(AnySource, ranks+1); here || err != nil {
					return fmt.Errorf("Iprobe of a tag that nobody uses: %+v, %v", st, err)
				}
				if st, here, err := c.Iprobe(st.Source, st.Tag+1); here || err != nil {
					return fmt.Errorf("Iprobe of another's tag: %+v, %v", st, err)
				}
				buf := make([]byte, n)
				got, err := Recv(ctx, c, buf, st.Source, st.Tag)
				if err != nil || got.Source != st.Source || isPattern(buf, got, n, st.Source) != nil && isPattern(buf, got, n, st.Source+10) != nil {
					return fmt.Errorf("probed %+v, got %+v, %v", st, got, err)
				}
			}
			if _, here, err := c.Iprobe(AnySource, c.Rank()); here && c.Rank() == 0 || err != nil {
				return fmt.Errorf("there is still a message: %v", err)
			}
			_, err := Waitall(ctx, out...)
			return errors.Join(err, Barrier(ctx, c)) // because the next size uses the same tags
		})
	}
}

// 3.8.2: only MRecv gets the message that a matching probe has removed: other receives get the next
// message with the same envelope, and Improbe does not find it again.
func TestStandard_3_8_2_Mprobe(t *testing.T) {
	parallel(t)
	eachSizeAmong(t, 2, func(ctx context.Context, c *Comm, n int) error {
		if c.Rank() == 0 {
			first, second := Issend(c, pattern(n, 1), 1, 1), Isend(c, pattern(n, 2), 1, 1)
			if err := fence(ctx, c, 1); err != nil { // the first message has been probed but not received
				return err
			}
			if _, done, err := first.Test(); done {
				return fmt.Errorf("complete before its receive: %v", err)
			}
			if err := fence(ctx, c, 1); err != nil {
				return err
			}
			_, err := Waitall(ctx, first, second)
			return errors.Join(fence(ctx, c, 1), err)
		}
		m, err := c.Mprobe(ctx, 0, AnyTag)
		if (m.Status != Status{Source: 0, Tag: 1, Count: n, Bytes: n}) || err != nil {
			return fmt.Errorf("Mprobe: %+v, %v", m.Status, err)
		}
		if err := errors.Join(fence(ctx, c, 0), arrivesAs(ctx, c, 0, 1, n, 2)); err != nil {
			return err
		}
		if _, here, err := c.Improbe(0, 1); here || err != nil {
			return fmt.Errorf("Improbe found a message that was taken out: %v", err)
		}
		if err := fence(ctx, c, 0); err != nil { // the first send is not complete
			return err
		}
		buf := make([]byte, n)
		st, err := MRecv(ctx, m, buf)
		return errors.Join(err, isPattern(buf, st, n, 1), fence(ctx, c, 0))
	})
}

// 3.8.2: if several goroutines probe, each message goes to one of them.
func TestStandard_3_8_2_MprobeRace(t *testing.T) {
	parallel(t)
	const each = 4
	count := often(320) // a multiple of each number of goroutines
	for _, ranks := range worldSizes(2) {
		standardWorld(t, ranks, func(ctx context.Context, c *Comm) error {
			if c.Rank() != 0 {
				for i := range count {
					if err := Bsend(ctx, c, pattern(16+mixedSizes[i%3], i), 0, i); err != nil {
						return err
					}
				}
				return nil
			}
			var mu sync.Mutex
			seen := map[[2]int]int{}
			var all sync.WaitGroup
			errs := make(chan error, each)
			for k := range each {
				all.Go(func() {
					errs <- takeSome(ctx, c, k, (ranks-1)*count/each, func(st Status) { mu.Lock(); seen[[2]int{st.Source, st.Tag}]++; mu.Unlock() })
				})
			}
			all.Wait()
			for range each {
				if err := <-errs; err != nil {
					return err
				}
			}
			if len(seen) != (ranks-1)*count {
				return fmt.Errorf("%d different messages of %d", len(seen), (ranks-1)*count)
			}
			return nil
		}, WithUnexpectedLimit(64<<10))
	}
}

// takeSome removes and receives count messages, with Mprobe or Improbe.
func takeSome(ctx context.Context, c *Comm, how, count int, note func(Status)) error {
	for range count {
		m, here, err := c.Improbe(AnySource, AnyTag)
		if !here && err == nil {
			m, err = c.Mprobe(ctx, AnySource, AnyTag)
		}
		if err != nil {
			return err
		}
		buf, want := make([]byte, m.Status.Bytes), m.Status
		r := MIrecv(m, buf)
		st, err := r.Wait(ctx)
		if err != nil || st != want || isPattern(buf, st, want.Bytes, st.Tag) != nil {
			return fmt.Errorf("goroutine %d probed %+v, got %+v, %v", how, want, st, err)
		}
		note(st)
	}
	return nil
}

// 3.8.4: a cancelled receive gets no message, and the next receive gets it. A receive that has
// matched gets its message although it is cancelled afterwards.
func TestStandard_3_8_4_CancelReceive(t *testing.T) {
	parallel(t)
	eachSizeAmong(t, 2, func(ctx context.Context, c *Comm, n int) error {
		if c.Rank() == 0 {
			return errors.Join(fence(ctx, c, 1), Send(ctx, c, pattern(n, 1), 1, 1), Send(ctx, c, []byte{}, 1, 2), fence(ctx, c, 1))
		}
		bufs := [][]byte{bytes.Repeat([]byte{9}, n), make([]byte, n)}
		cancelled, taker := Irecv(c, bufs[0], 0, 1), Irecv(c, bufs[1], AnySource, 1)
		if err := cancelled.Cancel(); err != nil {
			return err
		}
		st, err := cancelled.Wait(ctx)
		if !st.Cancelled || err != nil {
			return fmt.Errorf("not cancelled: %+v, %v", st, err)
		}
		if err := errors.Join(fence(ctx, c, 0), arrivesAs(ctx, c, 0, 2, 0, 0)); err != nil {
			return err
		}
		taker.Cancel() // a later message has arrived, so its own has matched
		if st, err = taker.Wait(ctx); err != nil || st.Cancelled {
			return fmt.Errorf("the next receive: %+v, %v", st, err)
		}
		if !bytes.Equal(bufs[0], bytes.Repeat([]byte{9}, n)) {
			return errors.New("the cancelled receive's buffer was changed")
		}
		return errors.Join(isPattern(bufs[1], st, n, 1), fence(ctx, c, 0))
	})
}

// verdict tells rank 1 whether the send was cancelled; its Wait returns in any case.
func verdict(ctx context.Context, c *Comm, r *Request) (bool, error) {
	st, err := r.Wait(ctx)
	if err != nil {
		return false, err
	}
	return st.Cancelled, Send(ctx, c, []bool{st.Cancelled}, 1, 9)
}

func learnVerdict(ctx context.Context, c *Comm) (bool, error) {
	b := []bool{false}
	_, err := Recv(ctx, c, b, 0, 9)
	return b[0], err
}

// 3.8.4: a send without a receive completes when it is cancelled, at once or when its message has
// arrived: it is either cancelled or received.
func TestStandard_3_8_4_CancelSend(t *testing.T) {
	parallel(t)
	for _, late := range []bool{false, true} {
		for i, mode := range startModes {
			eachSizeAmong(t, 2, func(ctx context.Context, c *Comm, n int) error {
				if c.Rank() == 0 {
					r := mode.start(c, pattern(n, i), 1, 1)
					if late {
						if err := fence(ctx, c, 1); err != nil {
							return err
						}
					}
					if err := errors.Join(r.Cancel(), r.Cancel()); err != nil {
						return err
					}
					gone, err := verdict(ctx, c, r)
					if gone && mode.name == "Ibsend" || !gone && late && mode.name == "Issend" {
						err = fmt.Errorf("%s: cancelled is %t", mode.name, gone)
					}
					return errors.Join(err, fence(ctx, c, 1))
				}
				if late {
					if err := fence(ctx, c, 0); err != nil {
						return err
					}
				}
				gone, err := learnVerdict(ctx, c)
				if _, here, err := c.Iprobe(0, 1); here == gone || err != nil {
					return fmt.Errorf("%s: cancelled is %t, and the message is here: %t, %v", mode.name, gone, here, err)
				}
				if !gone {
					err = errors.Join(err, arrivesAs(ctx, c, 0, 1, n, i))
				}
				return errors.Join(err, fence(ctx, c, 0))
			})
		}
	}
}

// 3.8.4: a send that a receive or a matching probe has matched cannot be cancelled.
func TestStandard_3_8_4_CancelMatchedSend(t *testing.T) {
	parallel(t)
	eachSizeAmong(t, 2, func(ctx context.Context, c *Comm, n int) error {
		for i, mode := range startModes {
			if c.Rank() == 0 {
				r := mode.start(c, pattern(n, i), 1, 1)
				if err := fence(ctx, c, 1); err != nil { // the message has been probed
					return err
				}
				if err := r.Cancel(); err != nil {
					return err
				}
				err := fence(ctx, c, 1) // the cancel has arrived
				if st, err1 := r.Wait(ctx); err1 != nil || st.Cancelled {
					return fmt.Errorf("%s: %+v, %v", mode.name, st, err1)
				}
				if err != nil {
					return err
				}
				continue
			}
			m, err := c.Mprobe(ctx, 0, 1)
			if err := errors.Join(err, fence(ctx, c, 0), fence(ctx, c, 0)); err != nil {
				return err
			}
			buf := make([]byte, n)
			st, err := MRecv(ctx, m, buf)
			if err := errors.Join(err, isPattern(buf, st, n, i)); err != nil {
				return fmt.Errorf("%s: %w", mode.name, err)
			}
		}
		return nil
	})
}

// 3.8.4: if a send is cancelled while its receive is posted, exactly one of the two takes effect.
func TestStandard_3_8_4_CancelRace(t *testing.T) {
	parallel(t)
	rounds := often(120)
	for _, limit := range []int{16 << 20, 64 << 10} {
		standardAmong(t, 2, func(ctx context.Context, c *Comm) error {
			for i := range rounds {
				n, mode := mixedSizes[i%4], startModes[i/4%2]
				if c.Rank() == 0 {
					r := mode.start(c, pattern(n, i), 1, 1)
					if i%3 == 0 {
						if err := fence(ctx, c, 1); err != nil {
							return err
						}
					}
					if err := r.Cancel(); err != nil {
						return err
					}
					if _, err := verdict(ctx, c, r); err != nil {
						return err
					}
					if err := fence(ctx, c, 1); err != nil {
						return err
					}
					continue
				}
				if i%3 == 0 {
					if err := fence(ctx, c, 0); err != nil {
						return err
					}
				}
				buf := bytes.Repeat([]byte{9}, n)
				in := Irecv(c, buf, 0, 1)
				gone, err := learnVerdict(ctx, c)
				if err != nil {
					return err
				}
				if gone {
					in.Cancel()
				}
				st, err := in.Wait(ctx)
				switch {
				case err != nil || st.Cancelled != gone:
					return fmt.Errorf("round %d, %s of %d: the send's cancelled is %t, the receive is %+v, %v", i, mode.name, n, gone, st, err)
				case gone && !bytes.Equal(buf, bytes.Repeat([]byte{9}, n)):
					return fmt.Errorf("round %d: bytes of a cancelled send came", i)
				case !gone && isPattern(buf, st, n, i) != nil:
					return isPattern(buf, st, n, i)
				}
				if err := fence(ctx, c, 0); err != nil {
					return err
				}
			}
			return nil
		}, WithUnexpectedLimit(limit))
	}
}

// 3.8.4: a send to the own rank without a receive can be cancelled, unless it is complete or a
// matching probe has removed its message.
func TestStandard_3_8_4_CancelSelf(t *testing.T) {
	parallel(t)
	eachSizeAmong(t, 1, func(ctx context.Context, c *Comm, n int) error {
		for i, mode := range startModes {
			for _, probed := range []bool{false, true} {
				r := mode.start(c, pattern(n, i), 0, 1)
				m, here := Message{}, false
				if probed {
					var err error
					if m, here, err = c.Improbe(0, 1); !here || err != nil {
						return fmt.Errorf("%s: not here: %v", mode.name, err)
					}
				}
				if err := r.Cancel(); err != nil {
					return err
				}
				buf := make([]byte, n)
				st, done, err := r.Test()
				if err != nil || probed && st.Cancelled || mode.name == "Issend" && !probed && !st.Cancelled {
					return fmt.Errorf("%s, probed %t: %+v, %v", mode.name, probed, st, err)
				}
				var in *Request
				if probed {
					in = MIrecv(m, buf)
				} else if _, here, _ = c.Iprobe(0, 1); here == st.Cancelled || !done && !here {
					return fmt.Errorf("%s: cancelled is %t, and the message is here: %t", mode.name, st.Cancelled, here)
				} else if here {
					in = Irecv(c, buf, 0, 1)
				}
				sts, err := Waitall(ctx, in, r)
				if err == nil && in != nil {
					err = isPattern(buf, sts[0], n, i)
				}
				if err != nil {
					return fmt.Errorf("%s, probed %t: %w", mode.name, probed, err)
				}
			}
		}
		return nil
	})
}

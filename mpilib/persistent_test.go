package mpilib

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

// Persistent requests transfer the contents of their buffers at each start, in all modes (MPI-4.1,
// section 3.9).
func TestStandard_3_9_PersistentRequests(t *testing.T) {
	const rounds = 20
	for _, n := range []int{0, 1, 20 << 10, 100 << 10} {
		t.Run(fmt.Sprintf("n=%d", n), func(t *testing.T) {
			parallel(t)
			anyWay(t, 2, func(ctx context.Context, c *Comm) error {
				peer := 1 - c.Rank()
				var sends, receives []*Persistent
				var out, in [][]byte
				for tag, init := range []func(*Comm, []byte, int, int) *Persistent{SendInit[byte], SsendInit[byte], BsendInit[byte], RsendInit[byte]} {
					out, in = append(out, make([]byte, n)), append(in, make([]byte, n))
					sends = append(sends, init(c, out[tag], peer, tag))
					receives = append(receives, RecvInit(c, in[tag], peer, tag))
				}
				for round := range rounds {
					for tag := range out {
						for i := range out[tag] {
							out[tag][i] = byte(round + tag + c.Rank())
						}
					}
					if err := errors.Join(Startall(receives...), Startall(sends...)); err != nil {
						return err
					}
					for tag, r := range receives {
						st, err := r.Wait(ctx)
						if err != nil || st != (Status{Source: peer, Tag: tag, Count: n, Bytes: n}) {
							return fmt.Errorf("round %d, tag %d: %+v, %w", round, tag, st, err)
						}
						if n > 0 && (in[tag][0] != byte(round+tag+peer) || in[tag][n-1] != byte(round+tag+peer)) {
							return fmt.Errorf("round %d, tag %d: %d", round, tag, in[tag][0])
						}
					}
					var open []*Request
					for _, s := range sends {
						open = append(open, s.Request())
					}
					if _, err := Waitall(ctx, open...); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
}

// An inactive request is complete and empty, an active one cannot be started, and a cancelled one
// can be restarted (MPI-4.1, sections 3.7.3, 3.8.4 and 3.9).
func TestStandard_3_9_ActiveAndInactive(t *testing.T) {
	anyWay(t, 1, func(ctx context.Context, c *Comm) error {
		buf := make([]int, 1)
		p := RecvInit(c, buf, 0, 1)
		for range 2 {
			if st, err := p.Wait(ctx); err != nil || st != emptyStatus {
				return fmt.Errorf("inactive: %+v, %w", st, err)
			}
			if st, done, err := p.Test(); err != nil || !done || st != emptyStatus {
				return fmt.Errorf("inactive: %+v, %v, %w", st, done, err)
			}
			if err := p.Start(); err != nil {
				return err
			}
			if _, done, _ := p.Test(); done {
				return errors.New("complete though nobody sent")
			}
			if err := p.Start(); !errors.Is(err, ErrActive) {
				return fmt.Errorf("started twice: %v", err)
			}
			if err := p.Cancel(); err != nil {
				return err
			}
			if st, err := p.Wait(ctx); err != nil || !st.Cancelled {
				return fmt.Errorf("cancelled: %+v, %w", st, err)
			}
		}
		if err := errors.Join(p.Start(), Send(ctx, c, []int{7}, 0, 1)); err != nil {
			return err
		}
		if _, err := p.Wait(ctx); err != nil || buf[0] != 7 {
			return fmt.Errorf("%d, %w", buf[0], err)
		}
		null := SendInit(c, buf, ProcNull, 3)
		if err := null.Start(); err != nil {
			return err
		}
		if st, done, err := null.Test(); err != nil || !done || st != nullStatus {
			return fmt.Errorf("ProcNull: %+v, %v, %w", st, done, err)
		}
		bad := RecvInit(c, buf, 9, 3)
		_, err := func() (Status, error) { bad.Start(); return bad.Wait(ctx) }()
		if !errors.Is(err, ErrRank) {
			return fmt.Errorf("rank 9 of 1: %v", err)
		}
		return nil
	})
}

// Once the completion of a persistent request was returned it is inactive, and every call for several
// ignores it, until it is started again (MPI-5.0, sections 3.7.5 and 3.9). That is so of the Request
// that the program kept, and of the one that Request returns.
func TestStandard_3_9_CompletedOnce(t *testing.T) {
	for _, kind := range []struct {
		name string
		init func(c *Comm, buf []byte) *Persistent
	}{
		{"small send", func(c *Comm, buf []byte) *Persistent { return SendInit(c, buf[:1], c.Rank(), 1) }},
		{"large send", func(c *Comm, buf []byte) *Persistent { return SendInit(c, buf, c.Rank(), 1) }},
		{"send of a Part", func(c *Comm, buf []byte) *Persistent { return c.SendInit(PartOf(buf), c.Rank(), 1) }},
		{"to no rank", func(c *Comm, buf []byte) *Persistent { return SendInit(c, buf, ProcNull, 1) }},
		{"of no rank", func(c *Comm, buf []byte) *Persistent { return RecvInit(c, buf, c.Size()+1, 1) }},
		{"collective call", func(c *Comm, buf []byte) *Persistent { return BarrierInit(c) }},
	} {
		for name, next := range completionCalls {
			t.Run(kind.name+" "+name, func(t *testing.T) {
				parallel(t)
				anyWay(t, 1, func(ctx context.Context, c *Comm) error {
					in, out := make([]byte, 1<<17), make([]byte, 1<<17)
					send := kind.init(c, out)
					receive := RecvInit(c, in, c.Rank(), AnyTag)
					for round := range 3 {
						if err := errors.Join(receive.Start(), send.Start()); err != nil {
							return err
						}
						if send.what.peer == ProcNull || send.what.call != "" || send.what.peer > c.Size() { // nothing else arrives
							if err := Send(ctx, c, out[:1], c.Rank(), 1); err != nil {
								return err
							}
						}
						kept := []*Request{receive.Request(), send.Request()}
						got := map[int]bool{}
						for len(got) < len(kept) { // a call that does not wait may find none
							more, err := next(ctx, kept)
							if err = errors.Join(err, ctx.Err()); err != nil && !errors.Is(err, ErrRank) {
								return err
							}
							for _, i := range more {
								if got[i] {
									return fmt.Errorf("round %d: request %d is complete twice", round, i)
								}
								got[i] = true
							}
						}
						if receive.Request() != nil || send.Request() != nil {
							return errors.New("active after the completion was returned")
						}
						if err := ignored(ctx, kept); err != nil {
							return fmt.Errorf("round %d: %w", round, err)
						}
						if st, err := send.Wait(ctx); st != emptyStatus || err != nil {
							return fmt.Errorf("Wait of an inactive request: %+v, %w", st, err)
						}
					}
					return nil
				})
			})
		}
	}
}

// completionCalls are the calls that return completions: the indices of those that each call returned.
var completionCalls = map[string]func(context.Context, []*Request) ([]int, error){
	"Waitany": func(ctx context.Context, all []*Request) ([]int, error) {
		i, _, err := Waitany(ctx, all...)
		return []int{i}, err
	},
	"Waitsome": func(ctx context.Context, all []*Request) ([]int, error) {
		done, _, err := Waitsome(ctx, all...)
		return done, err
	},
	"Testany": func(_ context.Context, all []*Request) ([]int, error) {
		if i, _, done, err := Testany(all...); done {
			return []int{i}, err
		}
		return nil, nil
	},
	"Testsome": func(_ context.Context, all []*Request) ([]int, error) {
		done, _, err := Testsome(all...)
		return done, err
	},
	"Waitall": func(ctx context.Context, all []*Request) ([]int, error) {
		_, err := Waitall(ctx, all...)
		return []int{0, 1}, err
	},
	"Testall": func(_ context.Context, all []*Request) ([]int, error) {
		if _, done, err := Testall(all...); done {
			return []int{0, 1}, err
		}
		return nil, nil
	},
	"Wait": func(ctx context.Context, all []*Request) ([]int, error) {
		_, err := all[0].Wait(ctx)
		_, err2 := all[1].Wait(ctx)
		return []int{0, 1}, errors.Join(err, err2)
	},
}

// ignored returns an error unless the calls for several requests ignore all of them.
func ignored(ctx context.Context, all []*Request) error {
	if i, st, err := Waitany(ctx, all...); i != Undefined || st != emptyStatus || err != nil {
		return fmt.Errorf("Waitany: %d, %+v, %v", i, st, err)
	}
	if i, st, done, err := Testany(all...); i != Undefined || st != emptyStatus || !done || err != nil {
		return fmt.Errorf("Testany: %d, %+v, %t, %v", i, st, done, err)
	}
	if done, sts, err := Waitsome(ctx, all...); len(done)+len(sts) != 0 || err != nil {
		return fmt.Errorf("Waitsome: %v, %v, %v", done, sts, err)
	}
	if done, sts, err := Testsome(all...); len(done)+len(sts) != 0 || err != nil {
		return fmt.Errorf("Testsome: %v, %v, %v", done, sts, err)
	}
	sts, err := Waitall(ctx, all...)
	tested, done, err2 := Testall(all...)
	if err = errors.Join(err, err2); err != nil || !done {
		return fmt.Errorf("Waitall, Testall: %t, %w", done, err)
	}
	for _, st := range append(sts, tested...) {
		if st != emptyStatus {
			return fmt.Errorf("Waitall, Testall: %v, %v", sts, tested)
		}
	}
	return nil
}

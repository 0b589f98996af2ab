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

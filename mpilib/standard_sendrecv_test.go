package mpilib

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
)

// 3.10: every call accepts ProcNull: sends and receives complete at once and transfer nothing,
// receives and probes return its status.
func TestStandard_3_10_ProcNull(t *testing.T) {
	parallel(t)
	for _, n := range worldSizes(1) {
		standardWorld(t, n, func(ctx context.Context, c *Comm) error {
			buf := []byte{7}
			for i, send := range []func(context.Context, *Comm, []byte, int, int) error{Send[byte], Ssend[byte], Bsend[byte], Rsend[byte]} {
				if err := send(ctx, c, buf, ProcNull, 1); err != nil {
					return fmt.Errorf("send %d: %w", i, err)
				}
			}
			for _, mode := range startModes {
				if _, done, err := mode.start(c, buf, ProcNull, 1).Test(); !done || err != nil {
					return fmt.Errorf("%s: %t, %v", mode.name, done, err)
				}
			}
			want := Status{Source: ProcNull, Tag: AnyTag}
			check := func(call string, st Status, ok bool, err error) error {
				if !ok || st != want || buf[0] != 7 || err != nil {
					return fmt.Errorf("%s: %+v, %t, %v, buffer %v", call, st, ok, err, buf)
				}
				return nil
			}
			for _, tag := range []int{1, AnyTag} {
				recv, err1 := Recv(ctx, c, buf, ProcNull, tag)
				irecv, done, err2 := Irecv(c, buf, ProcNull, tag).Test()
				probe, err3 := c.Probe(ctx, ProcNull, tag)
				iprobe, here, err4 := c.Iprobe(ProcNull, tag)
				m1, err5 := c.Mprobe(ctx, ProcNull, tag)
				m2, here2, err6 := c.Improbe(ProcNull, tag)
				mrecv, err7 := MRecv(ctx, m1, buf)
				mirecv, done2, err8 := MIrecv(m2, buf).Test()
				both, err9 := Sendrecv(ctx, c, []byte{8}, ProcNull, 0, buf, ProcNull, tag)
				replace, err10 := SendrecvReplace(ctx, c, buf, ProcNull, 0, ProcNull, tag)
				if err := errors.Join(
					check("Recv", recv, true, err1), check("Irecv", irecv, done, err2),
					check("Probe", probe, true, err3), check("Iprobe", iprobe, here, err4),
					check("Mprobe", m1.Status, true, err5), check("Improbe", m2.Status, here2, err6),
					check("MRecv", mrecv, true, err7), check("MIrecv", mirecv, done2, err8),
					check("Sendrecv", both, true, err9), check("SendrecvReplace", replace, true, err10),
				); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

// 3.11: in a ring in which every rank sends and receives at once there is no deadlock, with
// messages of all sizes and different ones in each direction; a ring of one is a message to self.
func TestStandard_3_11_Ring(t *testing.T) {
	parallel(t)
	for _, ranks := range worldSizes(1) {
		eachSize(t, ranks, func(ctx context.Context, c *Comm, n int) error {
			next, before := (c.Rank()+1)%ranks, (c.Rank()+ranks-1)%ranks
			buf := make([]byte, n+ranks)
			st, err := Sendrecv(ctx, c, pattern(n+c.Rank(), c.Rank()), next, 1, buf, before, 1)
			if err := errors.Join(err, isPattern(buf, st, n+before, before)); err != nil || st.Source != before || st.Tag != 1 {
				return fmt.Errorf("Sendrecv: %+v, %w", st, err)
			}
			one := pattern(n, c.Rank()+10)
			st, err = SendrecvReplace(ctx, c, one, next, 2, AnySource, 2)
			if err := errors.Join(err, isPattern(one, st, n, before+10)); err != nil || st.Source != before {
				return fmt.Errorf("SendrecvReplace: %+v, %w", st, err)
			}
			return nil
		})
	}
}

// 3.11, 3.10: the same in a line, with ProcNull as neighbour at its ends.
func TestStandard_3_11_Line(t *testing.T) {
	parallel(t)
	for _, ranks := range worldSizes(1) {
		eachSize(t, ranks, func(ctx context.Context, c *Comm, n int) error {
			next, before := c.Rank()+1, c.Rank()-1
			want := Status{Source: before, Tag: 1, Count: n, Bytes: n}
			if next == ranks {
				next = ProcNull
			}
			mine := c.Rank()
			if before < 0 {
				before, want = ProcNull, Status{Source: ProcNull, Tag: AnyTag}
			} else {
				mine--
			}
			buf := pattern(n, c.Rank())
			st, err := SendrecvReplace(ctx, c, buf, next, 1, before, 1)
			if st != want || err != nil || !bytes.Equal(buf, pattern(n, mine)) {
				return fmt.Errorf("%+v, %v", st, err)
			}
			return nil
		})
	}
}

// 3.11: the message of a Sendrecv can be received by any receive, and a Sendrecv can receive the
// message of any send. Its two messages may differ in type and tag.
func TestStandard_3_11_WithOthers(t *testing.T) {
	parallel(t)
	eachSizeAmong(t, 2, func(ctx context.Context, c *Comm, n int) error {
		if c.Rank() == 0 {
			in := make([]int32, n)
			st, err := Sendrecv(ctx, c, pattern(n, 5), 1, 3, in, 1, 4)
			if err != nil || (st != Status{Source: 1, Tag: 4, Count: n, Bytes: 4 * n}) || n > 0 && in[n-1] != int32(n) {
				return fmt.Errorf("%+v, %v", st, err)
			}
			return nil
		}
		out := make([]int32, n)
		if n > 0 {
			out[n-1] = int32(n)
		}
		r := Isend(c, out, 0, 4)
		err := arrivesAs(ctx, c, 0, 3, n, 5)
		_, err1 := r.Wait(ctx)
		return errors.Join(err, err1)
	})
}

// 3.11: if the send or the receive of a Sendrecv cannot start, the call returns that error and does
// not wait for the other.
func TestStandard_3_11_WrongArguments(t *testing.T) {
	parallel(t)
	eachSizeAmong(t, 2, func(ctx context.Context, c *Comm, n int) error {
		buf := make([]byte, n)
		other := 1 - c.Rank()
		if _, err := Sendrecv(ctx, c, pattern(n, 1), 2, 1, buf, other, 1); !errors.Is(err, ErrRank) {
			return fmt.Errorf("to rank 2: %v", err)
		}
		if _, err := SendrecvReplace(ctx, c, buf, other, -1, other, 1); !errors.Is(err, ErrTag) {
			return fmt.Errorf("with tag -1: %v", err)
		}
		if _, err := Sendrecv(ctx, c, []byte{}, ProcNull, 1, buf, 2, 1); !errors.Is(err, ErrRank) {
			return fmt.Errorf("from rank 2: %v", err)
		}
		return nil
	})
}

package mpilib

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/isthmus-grid/isthmus/mpilib/internal/comm"
)

// MPI-4.1, section 7.7: attributes are set, replaced, copied on Dup and
// deleted on Free, with the keys' functions called as the standard says.
func TestAttributes(t *testing.T) {
	anyWay(t, 3, func(ctx context.Context, c *Comm) error {
		var log []string
		key := func(name string, copy bool) *Key[int] {
			return NewKey(func(old *Comm, v int) (int, bool, error) {
				log = append(log, fmt.Sprintf("copy %s %d of %s", name, v, old.Name()))
				return v + 1, copy, nil
			}, func(old *Comm, v int) error {
				log = append(log, fmt.Sprintf("delete %s %d of %s", name, v, old.Name()))
				return nil
			})
		}
		a, b, kept := key("a", true), key("b", false), NewKey(CopyValue[string], nil)
		bare := NewKey[int](nil, nil)
		parent, err := c.Dup(ctx)
		if err != nil {
			return err
		}
		parent.SetName("P")
		if _, ok := a.Get(parent); ok {
			return errors.New("a value before Set")
		}
		if err := errors.Join(a.Set(parent, 1), a.Set(parent, 2), b.Set(parent, 5), kept.Set(parent, "x"), bare.Set(parent, 9)); err != nil {
			return err
		}
		child, err := parent.Dup(ctx)
		if err != nil {
			return err
		}
		child.SetName("C")
		va, oka := a.Get(child)
		vs, oks := kept.Get(child)
		_, okb := b.Get(child)
		_, okBare := bare.Get(child)
		if va != 3 || !oka || vs != "x" || !oks || okb || okBare {
			return fmt.Errorf("the duplicate has %d %v, %q %v, %v, %v", va, oka, vs, oks, okb, okBare)
		}
		split, err := parent.Split(ctx, 0, 0)
		if err != nil {
			return err
		}
		if _, ok := a.Get(split); ok {
			return errors.New("Split copied an attribute; only Dup does")
		}
		if err := errors.Join(b.Delete(parent), b.Delete(parent), b.Set(child, 7), parent.Free(), child.Free()); err != nil {
			return err
		}
		want := []string{"delete a 1 of P", "copy a 2 of P", "copy b 5 of P", "delete b 5 of P", "delete a 2 of P", "delete b 7 of C", "delete a 3 of C"}
		if !slices.Equal(log, want) {
			return fmt.Errorf("calls were %q, want %q", log, want)
		}
		return expect(a.Set(parent, 1), ErrFreed)
	})
}

// A copy that fails on one rank fails the Dup on all; a delete that fails
// leaves the value, and Free reports it.
func TestAttributeFaults(t *testing.T) {
	anyWay(t, 3, func(ctx context.Context, c *Comm) error {
		bad := errors.New("no copy")
		k := NewKey(func(*Comm, int) (int, bool, error) { return 0, true, bad }, nil)
		d, err := c.Dup(ctx)
		if err != nil {
			return err
		}
		if c.Rank() == 1 {
			if err := k.Set(d, 1); err != nil {
				return err
			}
		}
		_, err = d.Dup(ctx)
		if c.Rank() == 1 {
			err = expect(err, bad, "Dup on ", "copy of an attribute's key")
		} else {
			err = expect(err, ErrMismatch, "rank 1 gave bad arguments")
		}
		if err != nil {
			return err
		}
		stuck := errors.New("stuck")
		s := NewKey(nil, func(*Comm, int) error { return stuck })
		if err := s.Set(d, 4); err != nil {
			return err
		}
		if err := errors.Join(expect(s.Delete(d), stuck), expect(s.Set(d, 5), stuck)); err != nil {
			return err
		}
		if v, ok := s.Get(d); v != 4 || !ok {
			return fmt.Errorf("value %d, %v after a failed Delete", v, ok)
		}
		return errors.Join(expect(d.Free(), stuck), expect(d.Free(), ErrFreed))
	})
}

// MPI-4.1, section 11.2.4: Finalize deletes the attributes of MPI_COMM_SELF
// first, the last one set first, while messages still work.
func TestSelfAttributesAtFinalize(t *testing.T) {
	w, err := Init(t.Context(), func(c *config) { c.lookup = func(string) (string, bool) { return "", false } })
	if err != nil {
		t.Fatal(err)
	}
	var order []int
	for i := range 3 {
		k := NewKey(nil, func(c *Comm, v int) error {
			order = append(order, v)
			if _, err := Sendrecv(t.Context(), c, []int{v}, 0, 0, []int{0}, 0, 0); err != nil {
				return err
			}
			return nil
		})
		if err := k.Set(w.Self(), i); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Finalize(t.Context()); err != nil || !slices.Equal(order, []int{2, 1, 0}) {
		t.Errorf("deleted %v, %v", order, err)
	}
	if _, err := w.Comm().Idup(t.Context()).Wait(t.Context()); expect(err, ErrFinalized) != nil {
		t.Errorf("Idup afterwards: %v", err)
	}
}

// MPI-4.1, chapter 10: an Info keeps the order of its keys.
func TestInfo(t *testing.T) {
	i, err := NewInfo("b", "1", "a", "2", "c", "3", "a", "4")
	if err != nil {
		t.Fatal(err)
	}
	if v, ok := i.Get("a"); v != "4" || !ok || !slices.Equal(i.Keys(), []string{"b", "a", "c"}) {
		t.Errorf("%q %v, keys %q", v, ok, i.Keys())
	}
	dup := i.Dup()
	if !i.Delete("b") || i.Delete("b") || !slices.Equal(i.Keys(), []string{"a", "c"}) || !slices.Equal(dup.Keys(), []string{"b", "a", "c"}) {
		t.Errorf("after Delete: %q and %q", i.Keys(), dup.Keys())
	}
	var none *Info
	if _, ok := none.Get("a"); ok || len(none.Keys()) != 0 || len(none.Dup().Keys()) != 0 {
		t.Error("a nil Info has keys")
	}
	_, odd := NewInfo("a")
	if err := errors.Join(expect(odd, ErrArg), expect(i.Set("", "x"), ErrArg)); err != nil {
		t.Error(err)
	}
}

// MPI-4.1, section 7.4.4: hints are asserted, Dup drops them, DupWithInfo sets
// its own.
func TestHints(t *testing.T) {
	anyWay(t, 1, func(ctx context.Context, c *Comm) error {
		info, err := NewInfo(AssertNoAnySource, "true", "unknown", "x", AssertExactLength, "true")
		if err != nil {
			return err
		}
		d, err := c.DupWithInfo(ctx, info)
		if err != nil {
			return err
		}
		got := d.GetInfo()
		if s, _ := got.Get(AssertNoAnySource); s != "true" || !slices.Equal(got.Keys(), comm.HintKeys()) {
			return fmt.Errorf("hints %q %q", got.Keys(), s)
		}
		_, err = Recv(ctx, d, []int{0}, AnySource, 0)
		if err := expect(err, ErrAsserted, "receive from any rank of "+d.Name(), AssertNoAnySource); err != nil {
			return err
		}
		if _, _, err := d.Iprobe(0, AnyTag); err != nil {
			return err
		}
		off, err := NewInfo(AssertNoAnySource, "false", AssertNoAnyTag, "true")
		if err == nil {
			err = d.SetInfo(off)
		}
		if err != nil {
			return err
		}
		if _, _, err := d.Iprobe(AnySource, 0); err != nil {
			return err
		}
		if _, _, err := d.Iprobe(0, AnyTag); expect(err, ErrAsserted) != nil {
			return fmt.Errorf("any tag: %v", err)
		}
		plain, err := d.Dup(ctx)
		if err != nil {
			return err
		}
		if plain.core.Hints.Load() != 0 {
			return errors.New("Dup kept hints")
		}
		pending, err := d.IdupWithInfo(ctx, off).Wait(ctx)
		if err != nil || pending.core.Hints.Load() != d.core.Hints.Load()&^(1<<2) {
			return fmt.Errorf("IdupWithInfo: %v", err)
		}
		odd, err := NewInfo(AssertNoAnyTag, "maybe")
		if err != nil {
			return err
		}
		_, dupErr := c.DupWithInfo(ctx, odd)
		return errors.Join(expect(c.SetInfo(odd), ErrArg, `is "maybe"; give true or false`), expect(dupErr, ErrArg))
	})
}

package reductions

import "cmp"

// kernel applies an operation to n elements: inout[i] = in[i] op inout[i].
type kernel[T any] func(inout, in []T)

// each makes a kernel of an operation on two elements.
func each[T any](op func(a, b T) T) kernel[T] {
	return func(inout, in []T) {
		for i, v := range in {
			inout[i] = op(v, inout[i])
		}
	}
}

type integer interface {
	~int8 | ~int16 | ~int32 | ~int64 | ~uint8 | ~uint16 | ~uint32 | ~uint64
}

type real interface {
	integer | ~float32 | ~float64
}

// arithmetic adds and multiplies (MPI-5.0, section 6.9.2).
func arithmetic[T real | ~complex64 | ~complex128](op uintptr) kernel[T] {
	switch op {
	case Sum:
		return func(inout, in []T) {
			for i, v := range in {
				inout[i] += v
			}
		}
	case Prod:
		return func(inout, in []T) {
			for i, v := range in {
				inout[i] *= v
			}
		}
	}
	return nil
}

// ordered adds to that what needs an order.
func ordered[T real](op uintptr) kernel[T] {
	switch op {
	case Min:
		return each(func(a, b T) T { return min(a, b) })
	case Max:
		return each(func(a, b T) T { return max(a, b) })
	}
	return arithmetic[T](op)
}

// whole adds what is for integers only: bits, and C's logical values.
func whole[T integer](op uintptr) kernel[T] {
	switch op {
	case BAnd:
		return each(func(a, b T) T { return a & b })
	case BOr:
		return each(func(a, b T) T { return a | b })
	case BXor:
		return each(func(a, b T) T { return a ^ b })
	case LAnd, LOr, LXor:
		return logical[T](op)
	}
	return ordered[T](op)
}

// logical takes everything but 0 as true.
func logical[T integer](op uintptr) kernel[T] { return logicalOn[T](op, func() (T, T) { return 1, 0 }) }

// fortranLogical takes everything but Fortran's .FALSE. as true.
func fortranLogical[T integer](op uintptr) kernel[T] { return logicalOn(op, logicalValues[T]) }

// logicalOn makes a kernel of what true and false are, when it is applied. All that is not false is true.
func logicalOn[T integer](op uintptr, values func() (yes, no T)) kernel[T] {
	result := truths[op]
	if result == nil {
		return nil
	}
	return func(inout, in []T) {
		yes, no := values()
		for i, v := range in {
			if result(v != no, inout[i] != no) {
				inout[i] = yes
			} else {
				inout[i] = no
			}
		}
	}
}

// truths are the logical operations.
var truths = map[uintptr]func(a, b bool) bool{
	LAnd: func(a, b bool) bool { return a && b },
	LOr:  func(a, b bool) bool { return a || b },
	LXor: func(a, b bool) bool { return a != b },
}

// bits is for MPI_BYTE.
func bits(op uintptr) kernel[uint8] {
	switch op {
	case BAnd, BOr, BXor:
		return whole[uint8](op)
	}
	return nil
}

// located is a value and where it was, as C and Fortran lay out such pairs.
type located[V, I any] struct {
	Value V
	Index I
}

// extremes finds the least or greatest value, and the least index of those that have it
// (MPI-5.0, section 6.9.4).
func extremes[V, I cmp.Ordered](op uintptr) kernel[located[V, I]] {
	better := func(a, b V) bool { return a < b }
	switch op {
	case MaxLoc:
		better = func(a, b V) bool { return a > b }
	case MinLoc:
	default:
		return nil
	}
	return each(func(a, b located[V, I]) located[V, I] {
		switch {
		case better(a.Value, b.Value), a.Value == b.Value && a.Index < b.Index:
			return a
		}
		return b
	})
}

//go:build cabi

#include "wide.h"

/* The operations of the standard's ABI that these types have. */
enum { SUM = 0x21, MIN, MAX, PROD, BAND = 0x28, BOR, BXOR, LAND = 0x30, LOR, LXOR, MINLOC = 0x38, MAXLOC };

/* The kinds of types, numbered as in the core. */
enum { REAL, COMPLEX, PAIR, QUAD, QUAD_COMPLEX, INTEGER, LOGICAL };

#ifdef __x86_64__
typedef __float128 quad;
#else
typedef long double quad;
#endif

/* Memory of Go's is not aligned for these types. */
#define UNALIGNED __attribute__((packed, aligned(1)))
typedef struct UNALIGNED { long double v; } real;
typedef struct UNALIGNED { long double re, im; } complex_real;
typedef struct UNALIGNED { quad v; } quad_real;
typedef struct UNALIGNED { quad re, im; } quad_complex;
typedef struct UNALIGNED { __int128 v; } integer;
typedef struct UNALIGNED { long double v; int32_t index, gap[3]; } pair; /* where a long double has 16 bytes */

/* A function for each type: b = a op b, for n elements. */
#define FUNCTION(name, T, OPERATIONS) \
	static void name(uintptr_t op, T *b, const T *a, int64_t n) \
	{ \
		switch (op) { OPERATIONS } \
	}

#define EACH(op, expression) \
	case op: \
		for (int64_t i = 0; i < n; i++) \
			b[i].v = (expression); \
		break;
#define ARITHMETIC EACH(SUM, a[i].v + b[i].v) EACH(PROD, a[i].v * b[i].v)
#define ORDER EACH(MIN, a[i].v < b[i].v ? a[i].v : b[i].v) EACH(MAX, a[i].v > b[i].v ? a[i].v : b[i].v)
#define BITS EACH(BAND, a[i].v & b[i].v) EACH(BOR, a[i].v | b[i].v) EACH(BXOR, a[i].v ^ b[i].v)
#define LOGIC EACH(LAND, a[i].v && b[i].v) EACH(LOR, a[i].v || b[i].v) EACH(LXOR, !a[i].v != !b[i].v)

#define PARTS(op, T, real_part, imaginary_part) \
	case op: \
		for (int64_t i = 0; i < n; i++) { \
			const T x = a[i], y = b[i]; \
			b[i].re = (real_part), b[i].im = (imaginary_part); \
		} \
		break;
#define COMPLEX_ARITHMETIC(T) PARTS(SUM, T, x.re + y.re, x.im + y.im) PARTS(PROD, T, x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re)

#define EXTREME(op, better) \
	case op: \
		for (int64_t i = 0; i < n; i++) \
			if (a[i].v better b[i].v || (a[i].v == b[i].v && a[i].index < b[i].index)) \
				b[i] = a[i]; \
		break;

FUNCTION(reduce_real, real, ARITHMETIC ORDER)
FUNCTION(reduce_complex, complex_real, COMPLEX_ARITHMETIC(complex_real))
FUNCTION(reduce_pair, pair, EXTREME(MINLOC, <) EXTREME(MAXLOC, >))
FUNCTION(reduce_quad, quad_real, ARITHMETIC ORDER)
FUNCTION(reduce_quad_complex, quad_complex, COMPLEX_ARITHMETIC(quad_complex))
FUNCTION(reduce_integer, integer, ARITHMETIC ORDER BITS LOGIC)
FUNCTION(reduce_logical, integer, LOGIC)

void isthmus_wide(int32_t kind, uintptr_t op, uintptr_t inout, uintptr_t in, int64_t n)
{
	void *b = (void *)inout;
	const void *a = (const void *)in;
	switch (kind) {
	case REAL: reduce_real(op, b, a, n); break;
	case COMPLEX: reduce_complex(op, b, a, n); break;
	case PAIR: reduce_pair(op, b, a, n); break;
	case QUAD: reduce_quad(op, b, a, n); break;
	case QUAD_COMPLEX: reduce_quad_complex(op, b, a, n); break;
	case INTEGER: reduce_integer(op, b, a, n); break;
	case LOGICAL: reduce_logical(op, b, a, n); break;
	}
}

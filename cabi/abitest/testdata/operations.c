/* Each predefined operation on each predefined type, against loops: MPI_ERR_OP where the standard has no such pair
   (MPI-5.0, sections 6.9.2 and 6.9.4), except that characters are integers, and all integers have logical operations. */

#include "check.h"

#include <complex.h>
#include <stdint.h>

enum { N = 8 };
enum { SUM, PROD, MIN, MAX, BAND, BOR, BXOR, LAND, LOR, LXOR, MINLOC, MAXLOC, REPLACE, NO_OP, OPERATIONS };

static MPI_Op operation(int op)
{
	const MPI_Op all[OPERATIONS] = {MPI_SUM, MPI_PROD, MPI_MIN, MPI_MAX, MPI_BAND, MPI_BOR, MPI_BXOR, MPI_LAND, MPI_LOR, MPI_LXOR,
		MPI_MINLOC, MPI_MAXLOC, MPI_REPLACE, MPI_NO_OP};
	return all[op];
}

/* A form is how a C type is reduced: what operations it has, its values, and whether they are the same. */
typedef struct {
	int (*apply)(int op, const void *in, void *inout);
	void (*fill)(void *p, int seed);
	int (*same)(const void *p, const void *q);
} form;

#define ARITHMETIC case SUM: b[i] = a[i] + b[i]; break; case PROD: b[i] = a[i] * b[i]; break;
#define ORDER case MIN: b[i] = a[i] < b[i] ? a[i] : b[i]; break; case MAX: b[i] = a[i] > b[i] ? a[i] : b[i]; break;
#define BITS case BAND: b[i] = a[i] & b[i]; break; case BOR: b[i] = a[i] | b[i]; break; case BXOR: b[i] = a[i] ^ b[i]; break;
#define LOGIC case LAND: b[i] = a[i] && b[i]; break; case LOR: b[i] = a[i] || b[i]; break; case LXOR: b[i] = !a[i] != !b[i]; break;

#define FORM(id, T, OPERATORS, VALUE) \
	static int apply_##id(int op, const void *in, void *inout) \
	{ \
		const T *a = in; \
		T *b = inout; \
		for (int i = 0; i < N; i++) \
			switch (op) { OPERATORS default: return 0; } \
		return 1; \
	} \
	static void fill_##id(void *p, int seed) \
	{ \
		T *a = p; \
		for (int i = 0; i < N; i++) { \
			const int n = (i * 5 + seed * 3) % 7 - 2, m = seed % 3 + 1; \
			(void)m; \
			a[i] = (T)(VALUE); \
		} \
	} \
	static int same_##id(const void *p, const void *q) \
	{ \
		const T *a = p, *b = q; \
		for (int i = 0; i < N; i++) \
			if (a[i] != b[i]) \
				return 0; \
		return 1; \
	} \
	static const form id = {apply_##id, fill_##id, same_##id};

#define INTEGER(id, T) FORM(id, T, ARITHMETIC ORDER BITS LOGIC, n * (n > 3 ? 11 : 1))
#define LOGICAL(id, T) FORM(id, T, LOGIC, n > 0)
#define REAL(id, T) FORM(id, T, ARITHMETIC ORDER, n / (T)2)
#define COMPLEX(id, T) FORM(id, T, ARITHMETIC, n + m * I)

INTEGER(character, char)
INTEGER(i8, int8_t)
INTEGER(u8, uint8_t)
INTEGER(i16, int16_t)
INTEGER(u16, uint16_t)
INTEGER(i32, int32_t)
INTEGER(u32, uint32_t)
INTEGER(i64, int64_t)
INTEGER(u64, uint64_t)
LOGICAL(l8, int8_t)
LOGICAL(l16, int16_t)
LOGICAL(l32, int32_t)
LOGICAL(l64, int64_t)
FORM(bits, uint8_t, BITS, n * 37)
REAL(f32, float)
REAL(f64, double)
FORM(f80, long double, ARITHMETIC ORDER, n + (seed < 2 ? 0x1p-60L : 0))
COMPLEX(c64, float complex)
COMPLEX(c128, double complex)
COMPLEX(c160, long double complex)

/* Fortran's types of 16 bytes. */
#ifdef __SIZEOF_FLOAT128__
__extension__ typedef __float128 quad;
__extension__ typedef __int128 integer16;
typedef struct { quad re, im; } quad_complex;
FORM(f128, quad, ARITHMETIC ORDER, n + (seed < 2 ? (quad)1 / ((quad)(1ULL << 50) * (1ULL << 50)) : 0))
INTEGER(i128, integer16)
LOGICAL(l128, integer16)

static int apply_c256(int op, const void *in, void *inout)
{
	const quad_complex *a = in;
	quad_complex *b = inout;
	if (op != SUM && op != PROD)
		return 0;
	for (int i = 0; i < N; i++) {
		const quad re = b[i].re, im = b[i].im;
		b[i].re = op == SUM ? a[i].re + re : a[i].re * re - a[i].im * im;
		b[i].im = op == SUM ? a[i].im + im : a[i].re * im + a[i].im * re;
	}
	return 1;
}

static void fill_c256(void *p, int seed)
{
	quad_complex *a = p;
	for (int i = 0; i < N; i++)
		a[i].re = (i + seed) % 4 - 1, a[i].im = i % 3;
}

static int same_c256(const void *p, const void *q)
{
	const quad_complex *a = p, *b = q;
	for (int i = 0; i < N; i++)
		if (a[i].re != b[i].re || a[i].im != b[i].im)
			return 0;
	return 1;
}

static const form c256 = {apply_c256, fill_c256, same_c256};
#endif

/* A value of 0 to 2, and an index: values are often equal. */
#define PAIR(id, V, I) \
	typedef struct { V value; I index; } pair_##id; \
	static int apply_##id(int op, const void *in, void *inout) \
	{ \
		const pair_##id *a = in; \
		pair_##id *b = inout; \
		if (op != MINLOC && op != MAXLOC) \
			return 0; \
		for (int i = 0; i < N; i++) \
			if (a[i].value == b[i].value ? a[i].index < b[i].index : op == MINLOC ? a[i].value < b[i].value : a[i].value > b[i].value) \
				b[i] = a[i]; \
		return 1; \
	} \
	static void fill_##id(void *p, int seed) \
	{ \
		pair_##id *a = p; \
		for (int i = 0; i < N; i++) \
			a[i].value = (V)((i * (seed + 2)) % 3), a[i].index = (I)((i + 3 * seed) % 5 - 1); \
	} \
	static int same_##id(const void *p, const void *q) \
	{ \
		const pair_##id *a = p, *b = q; \
		for (int i = 0; i < N; i++) \
			if (a[i].value != b[i].value || a[i].index != b[i].index) \
				return 0; \
		return 1; \
	} \
	static const form id = {apply_##id, fill_##id, same_##id};

PAIR(float_int, float, int)
PAIR(double_int, double, int)
PAIR(long_int, long, int)
PAIR(int_int, int, int)
PAIR(short_int, short, int)
PAIR(long_double_int, long double, int)
PAIR(float_float, float, float)
PAIR(double_double, double, double)

/* none is the form of types that are not reduced. */
static int apply_none(int op, const void *in, void *inout)
{
	(void)op, (void)in, (void)inout;
	return 0;
}

static void fill_none(void *p, int seed)
{
	memset(p, seed, N);
}

static int same_none(const void *p, const void *q)
{
	(void)p, (void)q;
	return 1;
}

static const form none = {apply_none, fill_none, same_none};

/* A union has room and alignment for each type. */
typedef union {
	char bytes[N * 64];
	long double align;
} memory;

/* The class of an error code. */
static int class(int code)
{
	int c = -1;
	MPI_Error_class(code, &c);
	return c;
}

static int pairs_reduced;

static void check(const char *name, MPI_Datatype type, const form *f)
{
	for (int op = 0; op < OPERATIONS; op++) {
		memory in, inout, want, all;
		memset(&in, 0, sizeof in), memset(&inout, 0, sizeof inout), memset(&all, 0, sizeof all);
		f->fill(&in, 0);
		f->fill(&inout, 1);
		want = inout;
		const int valid = f->apply(op, &in, &want);
		const int code = MPI_Reduce_local(&in, &inout, N, type, operation(op));
		if (class(code) != (valid ? MPI_SUCCESS : MPI_ERR_OP) || (valid && !f->same(&inout, &want))) {
			fprintf(stderr, "%s, operation %d: error class %d, same %d\n", name, op, class(code), f->same(&inout, &want));
			CHECK(!"as the loop");
		}
		pairs_reduced += valid;
		f->fill(&want, 2);
		for (int r = 1; r < size && valid; r++) {
			f->fill(&in, r + 2);
			f->apply(op, &in, &want);
		}
		f->fill(&in, rank + 2);
		const int together = MPI_Allreduce(&in, &all, N, type, operation(op), MPI_COMM_WORLD);
		if (class(together) != (valid ? MPI_SUCCESS : MPI_ERR_OP) || (valid && !f->same(&all, &want))) {
			fprintf(stderr, "%s, operation %d of all: error class %d\n", name, op, class(together));
			CHECK(!"as the loop of all");
		}
	}
}

#define TYPE(type, f) check(#type, type, &f)

int main(int argc, char **argv)
{
	begin(&argc, &argv);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	TYPE(MPI_SIGNED_CHAR, i8), TYPE(MPI_UNSIGNED_CHAR, u8), TYPE(MPI_SHORT, i16), TYPE(MPI_UNSIGNED_SHORT, u16);
	TYPE(MPI_INT, i32), TYPE(MPI_UNSIGNED, u32), TYPE(MPI_LONG, i64), TYPE(MPI_UNSIGNED_LONG, u64);
	TYPE(MPI_LONG_LONG, i64), TYPE(MPI_UNSIGNED_LONG_LONG, u64);
	TYPE(MPI_INT8_T, i8), TYPE(MPI_UINT8_T, u8), TYPE(MPI_INT16_T, i16), TYPE(MPI_UINT16_T, u16);
	TYPE(MPI_INT32_T, i32), TYPE(MPI_UINT32_T, u32), TYPE(MPI_INT64_T, i64), TYPE(MPI_UINT64_T, u64);
	TYPE(MPI_AINT, i64), TYPE(MPI_OFFSET, i64), TYPE(MPI_COUNT, i64);
	TYPE(MPI_INTEGER, i32), TYPE(MPI_INTEGER1, i8), TYPE(MPI_INTEGER2, i16), TYPE(MPI_INTEGER4, i32), TYPE(MPI_INTEGER8, i64);
	TYPE(MPI_C_BOOL, l8), TYPE(MPI_CXX_BOOL, l8), TYPE(MPI_LOGICAL, l32);
#ifdef MPI_LOGICAL1
	TYPE(MPI_LOGICAL1, l8), TYPE(MPI_LOGICAL2, l16), TYPE(MPI_LOGICAL4, l32), TYPE(MPI_LOGICAL8, l64);
#else
	(void)&l16, (void)&l64;
#endif
	TYPE(MPI_BYTE, bits);
	TYPE(MPI_FLOAT, f32), TYPE(MPI_DOUBLE, f64), TYPE(MPI_LONG_DOUBLE, f80);
	TYPE(MPI_REAL, f32), TYPE(MPI_DOUBLE_PRECISION, f64), TYPE(MPI_REAL4, f32), TYPE(MPI_REAL8, f64);
	TYPE(MPI_C_FLOAT_COMPLEX, c64), TYPE(MPI_C_DOUBLE_COMPLEX, c128), TYPE(MPI_C_LONG_DOUBLE_COMPLEX, c160);
	TYPE(MPI_CXX_FLOAT_COMPLEX, c64), TYPE(MPI_CXX_DOUBLE_COMPLEX, c128), TYPE(MPI_CXX_LONG_DOUBLE_COMPLEX, c160);
	TYPE(MPI_COMPLEX, c64), TYPE(MPI_DOUBLE_COMPLEX, c128), TYPE(MPI_COMPLEX8, c64), TYPE(MPI_COMPLEX16, c128);
	TYPE(MPI_FLOAT_INT, float_int), TYPE(MPI_DOUBLE_INT, double_int), TYPE(MPI_LONG_INT, long_int), TYPE(MPI_2INT, int_int);
	TYPE(MPI_SHORT_INT, short_int), TYPE(MPI_LONG_DOUBLE_INT, long_double_int);
	TYPE(MPI_2REAL, float_float), TYPE(MPI_2DOUBLE_PRECISION, double_double), TYPE(MPI_2INTEGER, int_int);
	TYPE(MPI_CHAR, character), TYPE(MPI_CHARACTER, character), TYPE(MPI_WCHAR, none), TYPE(MPI_PACKED, none);
#ifdef __SIZEOF_FLOAT128__
	TYPE(MPI_REAL16, f128), TYPE(MPI_COMPLEX32, c256);
#ifdef MPI_LOGICAL16 /* the standard's ABI */
	TYPE(MPI_INTEGER16, i128), TYPE(MPI_LOGICAL16, l128);
#else
	(void)&i128, (void)&l128;
#endif
#endif
	MPI_Datatype own;
	MPI_Type_contiguous(1, MPI_INT, &own);
	MPI_Type_commit(&own);
	TYPE(own, none);
	MPI_Type_free(&own);
	MPI_Type_dup(MPI_DOUBLE, &own);
	TYPE(own, none);
	MPI_Type_free(&own);
	MPI_Type_create_f90_real(15, MPI_UNDEFINED, &own);
	TYPE(own, f64);
	MPI_Type_create_f90_complex(6, 30, &own);
	TYPE(own, c64);
	MPI_Type_create_f90_integer(4, &own);
	TYPE(own, i16);
	CHECK(pairs_reduced > 350);
	return finish();
}

#include "textflag.h"

// func returnAddresses(pcs []uintptr) int
//
// As in frames_amd64.s, but that a frame pointer lies just below its frame.
TEXT ·returnAddresses(SB), NOSPLIT|NOFRAME, $0-32
	MOVD pcs_base+0(FP), R0
	MOVD pcs_len+8(FP), R1
	MOVD 8(g), R8      // the end of the stack: g.stack.hi
	SUB  $16, R8
	MOVD $0, R2
	MOVD RSP, R3
	SUB  $16, R3
	MOVD R29, R4

next:
	CMP  R1, R2
	BGE  done
	CMP  R3, R4
	BLS  done
	CMP  R8, R4
	BHI  done
	MOVD 8(R4), R6
	MOVD R6, (R0)(R2<<3)
	ADD  $1, R2
	MOVD R4, R3
	MOVD (R4), R4
	B    next

done:
	MOVD R2, ret+24(FP)
	RET

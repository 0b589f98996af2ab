#include "textflag.h"

// func returnAddresses(pcs []uintptr) int
//
// Each frame begins with the caller's frame pointer, with the return address above it. A callback from C ends
// the chain with a pointer of C's, so what does not lie farther up in this goroutine's stack is not followed.
TEXT ·returnAddresses(SB), NOSPLIT|NOFRAME, $0-32
	MOVQ pcs_base+0(FP), DI
	MOVQ pcs_len+8(FP), CX
	MOVQ (TLS), DX
	MOVQ 8(DX), R8      // the end of the stack: g.stack.hi
	SUBQ $16, R8
	XORQ AX, AX
	MOVQ SP, R9
	MOVQ BP, SI

next:
	CMPQ AX, CX
	JGE  done
	CMPQ SI, R9
	JLS  done
	CMPQ SI, R8
	JHI  done
	MOVQ 8(SI), R10
	MOVQ R10, (DI)(AX*8)
	INCQ AX
	MOVQ SI, R9
	MOVQ (SI), SI
	JMP  next

done:
	MOVQ AX, ret+24(FP)
	RET

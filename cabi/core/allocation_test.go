package core

import (
	"slices"
	"testing"
)

// Memory has the alignment that the program asks for, and is freed once; that of 0 bytes has an address, too.
func TestAllocMem(t *testing.T) {
	joined()
	defer func(allocate func(size, alignment uintptr) uintptr, free func(uintptr)) {
		AllocateMemory, FreeMemory = allocate, free
	}(AllocateMemory, FreeMemory)
	var got, freed []uintptr
	AllocateMemory = func(size, alignment uintptr) uintptr {
		got = append(got, size, alignment)
		if size > 100 {
			return 0
		}
		return uintptr(4096 * len(got))
	}
	FreeMemory = func(address uintptr) { freed = append(freed, address) }
	var info, first, second, none uintptr
	InfoCreate(address(&info))
	hint := func(alignment string) {
		InfoSet(info, cText("mpi_minimum_memory_alignment"), cText(alignment))
	}
	check(t, "AllocMem", AllocMem(7, infoNull, address(&first)), success)
	check(t, "with no hint", AllocMem(7, info, address(&second)), success)
	hint("4096")
	check(t, "of nothing, aligned", AllocMem(0, info, address(&second)), success)
	hint("8")
	check(t, "aligned to less than usual", AllocMem(1, info, address(&none)), success)
	if want := []uintptr{7, 64, 7, 64, 1, 4096, 1, 64}; !slices.Equal(got, want) {
		t.Errorf("asked for %v, want %v", got, want)
	}
	for _, alignment := range []string{"0", "48", "-8", "page", "18446744073709551616"} {
		hint(alignment)
		check(t, "aligned to "+alignment, AllocMem(1, info, address(&none)), errInfoValue)
	}
	check(t, "of -1 bytes", AllocMem(-1, infoNull, address(&none)), errArg)
	check(t, "of too much", AllocMem(101, infoNull, address(&none)), errNoMem)
	check(t, "with no info", AllocMem(1, 77, address(&none)), errInfo)
	check(t, "FreeMem", FreeMem(second), success)
	check(t, "FreeMem", FreeMem(first), success)
	check(t, "FreeMem again", FreeMem(first), errBase)
	check(t, "FreeMem of what was not allocated", FreeMem(address(&none)), errBase)
	check(t, "FreeMem of address 0", FreeMem(0), success)
	if !slices.Equal(freed, []uintptr{second, first}) {
		t.Errorf("freed %v, want %v", freed, []uintptr{second, first})
	}
	InfoFree(address(&info))
}

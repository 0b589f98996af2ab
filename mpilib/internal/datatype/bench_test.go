package datatype

import (
	"testing"
	"unsafe"
)

// benchPack packs or unpacks count elements from memory in one call.
func benchPack(b *testing.B, d *Type, base unsafe.Pointer, count int64, unpack bool) {
	packed := make([]byte, d.Size()*count)
	b.SetBytes(int64(len(packed)))
	b.ReportAllocs()
	for b.Loop() {
		var err error
		if unpack {
			_, err = d.Unpack(base, count, packed, 0)
		} else {
			_, err = d.Pack(packed, base, count, 0)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkContiguous64K(b *testing.B) {
	memory := make([]float64, 8192)
	d := must(Contiguous(8, Double))
	b.Run("type", func(b *testing.B) { benchPack(b, d, unsafe.Pointer(&memory[0]), 1024, false) })
	b.Run("copy", func(b *testing.B) {
		packed := make([]float64, 8192)
		b.SetBytes(8 * 8192)
		for b.Loop() {
			copy(packed, memory)
		}
	})
}

// A column of a matrix: 8192 blocks of 8 bytes, every third double.
func BenchmarkVector8(b *testing.B) {
	memory := make([]float64, 3*8192)
	packed := make([]float64, 8192)
	d := must(Vector(8192, 1, 3, Double))
	b.Run("pack", func(b *testing.B) { benchPack(b, d, unsafe.Pointer(&memory[0]), 1, false) })
	b.Run("pack by hand", func(b *testing.B) {
		b.SetBytes(8 * 8192)
		for b.Loop() {
			for i := range packed {
				packed[i] = memory[3*i]
			}
		}
	})
	b.Run("unpack", func(b *testing.B) { benchPack(b, d, unsafe.Pointer(&memory[0]), 1, true) })
	b.Run("unpack by hand", func(b *testing.B) {
		b.SetBytes(8 * 8192)
		for b.Loop() {
			for i, v := range packed {
				memory[3*i] = v
			}
		}
	})
}

type threeFields struct {
	N int32
	V float64
	C uint8
}

// The hand-written loops write fields without padding, as in the message.
func BenchmarkStruct3(b *testing.B) {
	const n = 4096
	memory := make([]threeFields, n)
	d, err := For[threeFields]()
	if err != nil {
		b.Fatal(err)
	}
	base := unsafe.Pointer(&memory[0])
	b.Run("pack", func(b *testing.B) { benchPack(b, d, base, n, false) })
	b.Run("pack by hand", func(b *testing.B) {
		packed := make([]byte, 13*n)
		b.SetBytes(13 * n)
		for b.Loop() {
			for i := range memory {
				p := unsafe.Pointer(&packed[13*i])
				*(*int32)(p) = memory[i].N
				*(*float64)(unsafe.Add(p, 4)) = memory[i].V
				*(*uint8)(unsafe.Add(p, 12)) = memory[i].C
			}
		}
	})
	b.Run("unpack", func(b *testing.B) { benchPack(b, d, base, n, true) })
	b.Run("one", func(b *testing.B) { benchPack(b, d, base, 1, false) })
}

func BenchmarkIndexed8(b *testing.B) {
	memory := make([]float64, 4*8192)
	at := make([]int64, 8192)
	for i := range at {
		at[i] = int64(4*i + i%3)
	}
	d := must(IndexedBlock(1, at, Double))
	b.Run("pack", func(b *testing.B) { benchPack(b, d, unsafe.Pointer(&memory[0]), 1, false) })
	b.Run("pack by hand", func(b *testing.B) {
		packed := make([]float64, 8192)
		b.SetBytes(8 * 8192)
		for b.Loop() {
			for i, d := range at {
				packed[i] = memory[d]
			}
		}
	})
}

// One double: the overhead of reaching the copy.
func BenchmarkOne(b *testing.B) {
	memory := make([]float64, 1)
	benchPack(b, Double, unsafe.Pointer(&memory[0]), 1, false)
}

// A message in stretches of 1000 bytes, which end within blocks.
func BenchmarkVector8Stretches(b *testing.B) {
	memory := make([]float64, 3*8192)
	d := must(Vector(8192, 1, 3, Double))
	packed := make([]byte, 1000)
	b.SetBytes(8 * 8192)
	for b.Loop() {
		for pos := int64(0); pos < 8*8192; pos += 1000 {
			if _, err := d.Pack(packed, unsafe.Pointer(&memory[0]), 1, pos); err != nil {
				b.Fatal(err)
			}
		}
	}
}

func BenchmarkCommitIndexedMillion(b *testing.B) {
	at := make([]int64, 1e6)
	for i := range at {
		at[i] = int64(2*i + i%2)
	}
	for b.Loop() {
		must(IndexedBlock(1, at, Double))
	}
}

// TestNoAllocations: sending and receiving a message allocates nothing.
func TestNoAllocations(t *testing.T) {
	memory := make([]byte, 1<<16)
	packed := make([]byte, 1<<12)
	base := unsafe.Add(unsafe.Pointer(&memory[0]), 1<<15)
	for seed := range uint64(40) {
		d := chooseRandom(seed).random(3).t
		d.Commit()
		if low, high, err := d.Span(3); err != nil || low < -1<<15 || high > 1<<15 {
			continue
		}
		from := min(d.Size(), 5)
		if n := testing.AllocsPerRun(5, func() {
			_, err := d.Pack(packed, base, 3, from)
			_, err2 := d.Unpack(base, 3, packed, from)
			_, err3 := d.PackSlice(packed, memory, 1<<15, 3, 0)
			if err != nil || err2 != nil || err3 != nil {
				t.Fatal(err, err2, err3)
			}
		}); n != 0 {
			t.Errorf("%v allocates %v times", d, n)
		}
	}
}

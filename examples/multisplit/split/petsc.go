package split

import (
	"bufio"
	"encoding/binary"
	"io"
)

// What PETSc's binary files begin with (MAT_FILE_CLASSID and VEC_FILE_CLASSID of its manual, "MatLoad" and "VecLoad").
const (
	petscMatrix = 1211216
	petscVector = 1211214
)

// WritePETSc writes a system and the right side with which all x are 1, for programs that use PETSc: its binary
// format, big-endian, with indices of 32 bits and numbers of 64.
func WritePETSc(w io.Writer, s System) error {
	out := bufio.NewWriter(w) // its first error is that of Flush
	n := s.Rows()
	var lengths, columns []int32
	var values []float64
	for _, row := range s.Block(0, n) {
		before := len(columns)
		for i, e := range row {
			if i > 0 && e.Col == row[i-1].Col {
				values[len(values)-1] += e.Value
				continue
			}
			columns, values = append(columns, int32(e.Col)), append(values, e.Value)
		}
		lengths = append(lengths, int32(len(columns)-before))
	}
	for _, part := range []any{
		[]int32{petscMatrix, int32(n), int32(n), int32(len(columns))}, lengths, columns, values,
		[]int32{petscVector, int32(n)}, rowSums(s)(0, n),
	} {
		if err := binary.Write(out, binary.BigEndian, part); err != nil {
			return err
		}
	}
	return out.Flush()
}

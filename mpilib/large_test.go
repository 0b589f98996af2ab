package mpilib

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
)

// freeMemory returns how many bytes are available, or 0 if unknown.
func freeMemory() int {
	b, _ := os.ReadFile("/proc/meminfo")
	for line := range strings.Lines(string(b)) {
		if words := strings.Fields(line); len(words) == 3 && words[0] == "MemAvailable:" {
			kib, _ := strconv.Atoi(words[1])
			return kib << 10
		}
	}
	return 0
}

// large is a count that exceeds 32 bits.
const large = 1<<31 + 1<<16 + 5

// fill gives every 8 bytes of b a distinct value.
func fill(b []byte) {
	for i := 0; i+8 <= len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], uint64(i)*0x9e3779b97f4a7c15)
	}
	for i := len(b) &^ 7; i < len(b); i++ {
		b[i] = byte(i) | 1
	}
}

// isFilled returns an error that says where b differs from what fill writes.
func isFilled(b []byte) error {
	for i := 0; i+8 <= len(b); i += 8 {
		if got, want := binary.LittleEndian.Uint64(b[i:]), uint64(i)*0x9e3779b97f4a7c15; got != want {
			return fmt.Errorf("at %d: %#x, want %#x", i, got, want)
		}
	}
	for i := len(b) &^ 7; i < len(b); i++ {
		if b[i] != byte(i)|1 {
			return fmt.Errorf("at %d: %#x", i, b[i])
		}
	}
	return nil
}

// 3.2.2 and 5.1: a message may have more than 2^31 elements, of a byte or of a derived type, and
// arrives complete. It takes 10 GiB for a while, so it runs only if ISTHMUS_TEST_LARGE is set.
func TestStandard_3_2_2_LargeCounts(t *testing.T) {
	const need = 5 * large
	if os.Getenv("ISTHMUS_TEST_LARGE") == "" {
		t.Skipf("set ISTHMUS_TEST_LARGE=1 to send %d bytes in one message; it takes %d GiB of memory", large, need>>30)
	}
	if have := freeMemory(); have < need {
		t.Fatalf("%d GiB of memory are free, %d needed", have>>30, need>>30)
	}
	standardWorld(t, 2, func(ctx context.Context, c *Comm) error {
		if c.Rank() == 0 {
			buf := make([]byte, large)
			fill(buf)
			if err := Send(ctx, c, buf, 1, 1); err != nil {
				return err
			}
			return sendLargeType(ctx, c, buf)
		}
		buf := make([]byte, large)
		st, err := Recv(ctx, c, buf, 0, 1)
		if (st != Status{Source: 0, Tag: 1, Count: large, Bytes: large}) || err != nil {
			return fmt.Errorf("%+v, %w", st, err)
		}
		if err := isFilled(buf); err != nil {
			return err
		}
		clear(buf)
		if st, err = c.Recv(ctx, PartAs(buf, large, Byte), 0, 2); err != nil || st.Count != large || st.GetElements(Byte) != large {
			return fmt.Errorf("of a derived type: %+v, %w", st, err)
		}
		return isFilled(buf)
	})
}

// sendLargeType sends the same as elements of a type: two bytes in reverse order, so that it must
// be packed, from memory in which they are swapped.
func sendLargeType(ctx context.Context, c *Comm, buf []byte) error {
	swapped, err := TypeIndexedBlock(1, []int{1, 0}, Byte)
	if err != nil {
		return err
	}
	if err := swapped.Commit(); err != nil {
		return err
	}
	for i := 0; i+2 <= len(buf); i += 2 {
		buf[i], buf[i+1] = buf[i+1], buf[i]
	}
	last, err := TypeStruct([]int{large / 2, 1}, []int{0, large - 1}, []*Datatype{swapped, Byte})
	if err != nil {
		return err
	}
	if err := last.Commit(); err != nil {
		return err
	}
	return c.Send(ctx, PartAs(buf, 1, last), 1, 2)
}

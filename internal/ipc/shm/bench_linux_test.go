package shm

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

var sizes = []int{1, 8, 64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20}

func sizeName(n int) string {
	switch {
	case n >= 1<<20:
		return fmt.Sprintf("%dMiB", n>>20)
	case n >= 1<<10:
		return fmt.Sprintf("%dKiB", n>>10)
	default:
		return fmt.Sprintf("%dB", n)
	}
}

// BenchmarkLatency measures half a round trip of a message between two processes, copied in and
// copied out.
func BenchmarkLatency(b *testing.B) {
	for _, size := range sizes {
		b.Run(sizeName(size), func(b *testing.B) { pingPong(b, size) })
	}
}

func pingPong(b *testing.B, size int) {
	p := start(b, "serve", 0)
	b.SetBytes(int64(size))
	b.ResetTimer()
	rounds(b, p, size, (b.N+1)/2)
}

// BenchmarkStream measures messages in one direction, at full speed.
func BenchmarkStream(b *testing.B) {
	for _, size := range sizes {
		b.Run(sizeName(size), func(b *testing.B) {
			p := start(b, "serve", 0)
			b.SetBytes(int64(size))
			b.ResetTimer()
			streaming(b, p, size, b.N)
		})
	}
}

// rounds makes round trips.
func rounds(b *testing.B, p *party, size, count int) {
	msg, buf := make([]byte, size), make([]byte, size)
	for range count {
		if err := p.send(opEcho, msg); err != nil {
			b.Fatal(err)
		}
		if _, _, err := p.recv(buf); err != nil {
			b.Fatal(err)
		}
	}
}

// streaming sends messages, and waits until all have arrived.
func streaming(b *testing.B, p *party, size, count int) {
	msg := make([]byte, size)
	for range count {
		if err := p.send(opSink, msg); err != nil {
			b.Fatal(err)
		}
	}
	if err := p.send(opEcho, nil); err != nil {
		b.Fatal(err)
	}
	if _, _, err := p.recv(msg); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkOneCPU is BenchmarkLatency with both processes on one CPU.
func BenchmarkOneCPU(b *testing.B) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		b.Fatal(err)
	}
	for cpu := 0; one.Count() == 0; cpu++ {
		if all.IsSet(cpu) {
			one.Set(cpu)
		}
	}
	defer unix.SchedSetaffinity(0, &all)
	for _, size := range []int{1, 1 << 10, 64 << 10, 1 << 20} {
		b.Run(sizeName(size), func(b *testing.B) {
			runtime.LockOSThread() // this goroutine's thread, from which the child inherits
			defer runtime.UnlockOSThread()
			unix.SchedSetaffinity(0, &one)
			defer unix.SchedSetaffinity(0, &all)
			pingPong(b, size)
		})
	}
}

// BenchmarkAgainstC alternates between the same ring in C and this one, and reports the median
// ratio of the times: below 1 this one is faster.
func BenchmarkAgainstC(b *testing.B) {
	cc, err := exec.LookPath("cc")
	if err != nil {
		b.Skip("no C compiler")
	}
	program := filepath.Join(b.TempDir(), "ring")
	if out, err := exec.Command(cc, "-O2", "-o", program, "testdata/ring.c").CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	for _, mode := range []string{"latency", "stream"} {
		for _, size := range sizes {
			b.Run(mode+"/"+sizeName(size), func(b *testing.B) {
				againstC(b, program, mode, size)
			})
		}
	}
}

func againstC(b *testing.B, program, mode string, size int) {
	const turns = 7
	count := max(50, min(50_000, 32<<20/size)) // some 10 ms
	run := streaming
	if mode == "latency" {
		run = rounds
	}
	var ratios, ours, theirs []float64
	for range turns {
		p := start(b, "serve", 0)
		run(b, p, size, count/10+1)
		began := time.Now()
		run(b, p, size, count)
		us := float64(time.Since(began).Nanoseconds()) / float64(count)
		if mode == "latency" {
			us /= 2
		}
		p.stop()
		out, err := exec.Command(program, mode, fmt.Sprint(size), fmt.Sprint(count)).Output()
		if err != nil {
			b.Fatal(err)
		}
		c, err := strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
		if err != nil {
			b.Fatal(err)
		}
		ratios, ours, theirs = append(ratios, us/c), append(ours, us), append(theirs, c)
	}
	median := func(v []float64) float64 { slices.Sort(v); return v[len(v)/2] }
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(ratios), "x-of-C")
	b.ReportMetric(median(ours), "Go-ns")
	b.ReportMetric(median(theirs), "C-ns")
}

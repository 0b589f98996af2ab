package mpilib_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/isthmus-grid/isthmus/mpilib"
)

// example runs a world in place of a test. Real programs call Init, as Example does, and
// are started by `isthmus run -n 4 ./program`.
type example struct{}

func (example) Helper()                           {}
func (example) Context() context.Context          { return context.Background() }
func (example) Cleanup(func())                    {}
func (example) Errorf(format string, args ...any) { fmt.Printf(format+"\n", args...) }
func (example) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// A whole program. Started by itself it is a world of one.
func Example() {
	ctx := context.Background()
	w, err := mpilib.Init(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	comm := w.Comm()
	sum := make([]int, 1)
	if err := mpilib.Allreduce(ctx, comm, []int{comm.Rank() + 1}, sum, mpilib.Sum); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Printf("rank %d of %d: the sum is %d\n", comm.Rank(), comm.Size(), sum[0])
	if err := w.Finalize(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	// Output: rank 0 of 1: the sum is 1
}

func ExampleSend() {
	mpilib.TestWorld(example{}, 2, func(ctx context.Context, comm *mpilib.Comm) error {
		const tag = 7
		if comm.Rank() == 0 {
			return mpilib.Send(ctx, comm, []float64{1, 2, 3}, 1, tag)
		}
		buf := make([]float64, 10)
		status, err := mpilib.Recv(ctx, comm, buf, mpilib.AnySource, mpilib.AnyTag)
		if err != nil {
			return err
		}
		fmt.Printf("%v from rank %d, tag %d\n", buf[:status.Count], status.Source, status.Tag)
		return nil
	})
	// Output: [1 2 3] from rank 0, tag 7
}

// Messages of plain structs, without a datatype.
func ExampleSend_struct() {
	type particle struct {
		Position [3]float64
		Charge   int8
	}
	mpilib.TestWorld(example{}, 2, func(ctx context.Context, comm *mpilib.Comm) error {
		if comm.Rank() == 0 {
			return mpilib.Send(ctx, comm, []particle{{Position: [3]float64{1, 2, 3}, Charge: -1}}, 1, 0)
		}
		p := make([]particle, 1)
		_, err := mpilib.Recv(ctx, comm, p, 0, 0)
		fmt.Printf("%+v\n", p[0])
		return err
	})
	// Output: {Position:[1 2 3] Charge:-1}
}

// Every rank sends to its right neighbour and computes meanwhile.
func ExampleIsend() {
	mpilib.TestWorld(example{}, 4, func(ctx context.Context, comm *mpilib.Comm) error {
		right, left := (comm.Rank()+1)%comm.Size(), (comm.Rank()+comm.Size()-1)%comm.Size()
		got := make([]int, 1)
		in := mpilib.Irecv(comm, got, left, 0)
		out := mpilib.Isend(comm, []int{comm.Rank()}, right, 0)

		square := comm.Rank() * comm.Rank() // messages move while this is computed

		if _, err := mpilib.Waitall(ctx, in, out); err != nil {
			return err
		}
		if comm.Rank() == 3 {
			fmt.Printf("rank 3 has computed %d and received %d\n", square, got[0])
		}
		return nil
	})
	// Output: rank 3 has computed 9 and received 2
}

func ExampleAllreduce() {
	mpilib.TestWorld(example{}, 4, func(ctx context.Context, comm *mpilib.Comm) error {
		mine := []float64{float64(comm.Rank()), 1}
		sum := make([]float64, len(mine))
		if err := mpilib.Allreduce(ctx, comm, mine, sum, mpilib.Sum); err != nil {
			return err
		}
		greatest := make([]float64, len(mine))
		if err := mpilib.Reduce(ctx, comm, mine, greatest, mpilib.Max, 0); err != nil {
			return err
		}
		if comm.Rank() == 0 {
			fmt.Println(sum, greatest)
		}
		return nil
	})
	// Output: [6 4] [3 1]
}

func ExampleGather() {
	mpilib.TestWorld(example{}, 3, func(ctx context.Context, comm *mpilib.Comm) error {
		work := make([]int, 2)
		var all, results []int
		if comm.Rank() == 0 {
			all, results = []int{1, 2, 3, 4, 5, 6}, make([]int, 6)
		}
		if err := mpilib.Scatter(ctx, comm, all, work, 0); err != nil {
			return err
		}
		for i := range work {
			work[i] *= 10
		}
		if err := mpilib.Gather(ctx, comm, work, results, 0); err != nil {
			return err
		}
		if comm.Rank() == 0 {
			fmt.Println(results)
		}
		return nil
	})
	// Output: [10 20 30 40 50 60]
}

// One communicator for the ranks of each site, and one for the first ranks of the sites: the sum
// within a site needs no message between sites.
func ExampleComm_SplitType() {
	places := mpilib.WithPlaces(func(rank int) (site, node string) { // without this option the helper determines the places
		return []string{"paris", "kyoto"}[rank%2], "n1"
	})
	mpilib.TestWorld(example{}, 4, func(ctx context.Context, comm *mpilib.Comm) error {
		site, err := comm.SplitType(ctx, mpilib.SplitSite, comm.Rank(), nil)
		if err != nil {
			return err
		}
		defer site.Free()
		sum := make([]int, 1)
		if err := mpilib.Reduce(ctx, site, []int{comm.Rank()}, sum, mpilib.Sum, 0); err != nil {
			return err
		}
		colour := mpilib.Undefined
		if site.Rank() == 0 {
			colour = 0
		}
		leaders, err := comm.Split(ctx, colour, comm.Rank())
		if err != nil || leaders == nil {
			return err
		}
		defer leaders.Free()
		sums := make([]int, leaders.Size())
		if err := mpilib.Gather(ctx, leaders, sum, sums, 0); err != nil {
			return err
		}
		if leaders.Rank() == 0 {
			fmt.Println("sums of the sites:", sums)
		}
		return nil
	}, places)
	// Output: sums of the sites: [2 4]
}

func ExampleComm_Topology() {
	places := mpilib.WithPlaces(func(rank int) (site, node string) {
		return []string{"paris", "kyoto"}[rank/2], fmt.Sprintf("n%d", rank%2)
	})
	mpilib.TestWorld(example{}, 4, func(ctx context.Context, comm *mpilib.Comm) error {
		t, err := comm.Topology(ctx)
		if err != nil || comm.Rank() != 0 {
			return err
		}
		for _, r := range t.Ranks {
			fmt.Printf("rank %d: %s/%s, colours %v\n", r.Rank, r.Site, r.Node, r.Colours)
		}
		fmt.Println("ranks 0 and 1 share the", t.Shared(0, 1))
		fmt.Println("ranks 1 and 2 share the", t.Shared(1, 2))
		return nil
	}, places)
	// Output:
	// rank 0: paris/n0, colours [0 0 0]
	// rank 1: paris/n1, colours [0 0 1]
	// rank 2: kyoto/n0, colours [0 1 2]
	// rank 3: kyoto/n1, colours [0 1 3]
	// ranks 0 and 1 share the site
	// ranks 1 and 2 share the grid
}

// Groups that were given names at the start, as by
// isthmus run -n 4 --groups master:1,workers:3.
func ExampleComm_SplitType_groups() {
	mpilib.TestWorld(example{}, 4, func(ctx context.Context, comm *mpilib.Comm) error {
		mine, err := comm.SplitType(ctx, mpilib.SplitGroup, 0, nil)
		if err != nil {
			return err
		}
		defer mine.Free()
		t, err := comm.Topology(ctx)
		if err != nil || comm.Rank() != 2 {
			return err
		}
		for _, g := range t.Groups {
			fmt.Printf("%s: %d from rank %d on\n", g.Name, g.Count, g.First)
		}
		fmt.Printf("rank 2 is one of the %s, and rank %d of %d there\n", t.Ranks[2].Group, mine.Rank(), mine.Size())
		return nil
	}, mpilib.WithGroups("master:1,workers:3"))
	// Output:
	// master: 1 from rank 0 on
	// workers: 3 from rank 1 on
	// rank 2 is one of the workers, and rank 1 of 3 there
}

// A persistent request repeats a transfer with the same arguments.
func ExampleSendInit() {
	mpilib.TestWorld(example{}, 2, func(ctx context.Context, comm *mpilib.Comm) error {
		peer := 1 - comm.Rank()
		mine, theirs := make([]int, 1), make([]int, 1)
		send := mpilib.SendInit(comm, mine, peer, 0)
		recv := mpilib.RecvInit(comm, theirs, peer, 0)
		for range 3 {
			mine[0] += comm.Rank() + 1
			if err := mpilib.Startall(recv, send); err != nil {
				return err
			}
			if _, err := recv.Wait(ctx); err != nil {
				return err
			}
			if _, err := send.Wait(ctx); err != nil {
				return err
			}
		}
		if comm.Rank() == 0 {
			fmt.Println("rank 1 sent", theirs[0], "last")
		}
		return nil
	})
	// Output: rank 1 sent 6 last
}

// A library creates its own communicator, so that its messages match no others.
func ExampleComm_Dup() {
	mpilib.TestWorld(example{}, 2, func(ctx context.Context, comm *mpilib.Comm) error {
		library, err := comm.Dup(ctx)
		if err != nil {
			return err
		}
		defer library.Free()
		library.SetName("my library")
		if comm.Rank() == 0 {
			out := mpilib.Isend(library, []string{"a", "b"}, 1, 0) // strings cannot be sent
			_, err := out.Wait(ctx)
			fmt.Println(errors.Is(err, mpilib.ErrType))
		}
		return nil
	})
	// Output: true
}

// A grid of two by two processes, whose columns are rings.
func ExampleComm_CartCreate() {
	mpilib.TestWorld(example{}, 4, func(ctx context.Context, comm *mpilib.Comm) error {
		grid, err := comm.CartCreate(ctx, []int{2, 2}, []bool{true, false}, false)
		if err != nil {
			return err
		}
		defer grid.Free()
		for dim := range 2 {
			from, to, err := grid.CartShift(dim, 1)
			if err != nil {
				return err
			}
			got := []int{-1} // unchanged where there is no neighbour
			if _, err := mpilib.Sendrecv(ctx, grid, []int{grid.Rank()}, to, 0, got, from, 0); err != nil {
				return err
			}
			if grid.Rank() == 2 {
				fmt.Printf("rank 2 received %d along dimension %d\n", got[0], dim)
			}
		}
		return nil
	})
	// Output:
	// rank 2 received 0 along dimension 0
	// rank 2 received -1 along dimension 1
}

// Errors say what failed and where; errors.Is distinguishes their causes.
func Example_errors() {
	mpilib.TestWorld(example{}, 2, func(ctx context.Context, comm *mpilib.Comm) error {
		if comm.Rank() == 0 {
			return mpilib.Send(ctx, comm, make([]int32, 4), 1, 7)
		}
		_, err := mpilib.Recv(ctx, comm, make([]int32, 3), 0, 7)
		if !errors.Is(err, mpilib.ErrTruncate) {
			return fmt.Errorf("got %w", err)
		}
		fmt.Println(err)
		return nil
	})
	// Output: mpilib: rank 1: receive from rank 0 of world, tag 7: message is longer than the receive buffer: the message has 16 bytes, the buffer 12
}

// Every call that waits takes a context, and ends with it.
func Example_cancel() {
	mpilib.TestWorld(example{}, 2, func(ctx context.Context, comm *mpilib.Comm) error {
		if comm.Rank() == 0 {
			bounded, cancel := context.WithCancel(ctx)
			cancel() // or WithTimeout
			_, err := mpilib.Recv(bounded, comm, make([]int, 1), 1, 0)
			fmt.Println(errors.Is(err, context.Canceled))
		}
		return mpilib.Barrier(ctx, comm)
	})
	// Output: true
}

// A program that does not check errors can set a handler that ends the process.
func ExampleComm_SetErrorHandler() {
	mpilib.TestWorld(example{}, 1, func(ctx context.Context, comm *mpilib.Comm) error {
		comm.SetErrorHandler(func(c *mpilib.Comm, err error) error {
			fmt.Println("on", c.Name()+":", errors.Is(err, mpilib.ErrRank))
			return nil // hides the error; ErrorsAreFatal would end the process
		})
		return mpilib.Send(ctx, comm, []int{1}, 99, 0)
	})
	// Output: on world: true
}

// The debug mode, which ISTHMUS_DEBUG=1 enables without a change to the program.
func ExampleWithDebug() {
	var report strings.Builder
	mpilib.TestWorld(example{}, 1, func(ctx context.Context, comm *mpilib.Comm) error {
		mpilib.Isend(comm, []int{1}, 0, 5) // never waited for
		_, err := mpilib.Recv(ctx, comm, make([]int, 1), 0, 5)
		return err
	}, mpilib.WithDebug(&report))
	text, _, _ := strings.Cut(report.String(), " at ") // the line of the call follows
	fmt.Println(text)
	// Output:
	// isthmus debug: rank 0 leaves behind
	//   a request that was never waited for, complete: send to rank 0 of world, tag 5
}

// A column of a matrix is sent without a copy in the program, and received as a row.
func ExampleTypeVector() {
	mpilib.TestWorld(example{}, 2, func(ctx context.Context, comm *mpilib.Comm) error {
		if comm.Rank() == 0 {
			matrix := []float64{
				1, 2, 3,
				4, 5, 6,
			}
			number, err := mpilib.TypeOf[float64]()
			if err != nil {
				return err
			}
			column, err := mpilib.TypeVector(2, 1, 3, number) // two blocks of one number, three apart
			if err != nil {
				return err
			}
			if err := column.Commit(); err != nil {
				return err
			}
			return comm.Send(ctx, mpilib.PartAs(matrix[1:], 1, column), 1, 0)
		}
		row := make([]float64, 2)
		if _, err := mpilib.Recv(ctx, comm, row, 0, 0); err != nil {
			return err
		}
		fmt.Println(row)
		return nil
	})
	// Output: [2 5]
}

// Each half of a message is sent as soon as it is ready, and the receiver works on one while the
// other is in transit.
func ExamplePsendInit() {
	mpilib.TestWorld(example{}, 2, func(ctx context.Context, comm *mpilib.Comm) error {
		buf := make([]int, 4)
		if comm.Rank() == 0 {
			out, err := mpilib.PsendInit(comm, buf, 2, 1, 0)
			if err != nil {
				return err
			}
			if err := out.Start(); err != nil {
				return err
			}
			for half := range 2 {
				buf[2*half], buf[2*half+1] = half, 10*half
				if err := out.Pready(half); err != nil {
					return err
				}
			}
			_, err = out.Wait(ctx)
			return errors.Join(err, out.Free())
		}
		in, err := mpilib.PrecvInit(comm, buf, 2, 0, 0)
		if err != nil {
			return err
		}
		if err := in.Start(); err != nil {
			return err
		}
		first, err := in.Parrived(0) // false if it is still in transit
		if err != nil {
			return err
		}
		if first {
			buf[0]++ // the program may already modify the first half
		}
		if _, err := in.Wait(ctx); err != nil {
			return err
		}
		if !first {
			buf[0]++
		}
		fmt.Println(buf)
		return in.Free()
	})
	// Output: [1 0 1 10]
}

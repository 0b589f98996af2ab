package ft

import (
	"context"
	"fmt"
	"math"

	"github.com/isthmus-grid/isthmus/examples/npb"
	"github.com/isthmus-grid/isthmus/examples/npb/random"
	"github.com/isthmus-grid/isthmus/mpilib"
)

// solver is one rank's part. A slab is the rank's planes one after another, a
// plane its rows. A beam is, for each of the rank's share of the places of a
// plane, the line of all points there. Between the two lies an Alltoall:
//
//	slab [z of rank][place]  -- transpose -->  [place][z of rank]
//	     one block of places for each rank  -- Alltoall -->
//	     one block of z from each rank, [place of rank][z of block]
//
// and a line is put together from its piece in each block. The way back is the
// same in reverse.
type solver struct {
	comm     *mpilib.Comm
	p        problem
	planes   int // the rank's, from plane rank*planes on
	places   int // the rank's, from place rank*places on
	x, y, z  transform
	messages npb.Stopwatch

	spectrum   []complex128 // a beam: the solution's transform at the time reached
	one, other []complex128 // at work, either a slab or blocks
	plane      []complex128 // scratch
	line       []complex128
	lineToo    []complex128 // scratch
	// decay of a wave in one time step is the product of three factors, one by
	// each of its numbers.
	decayX, decayY, decayZ []float64
	sums                   []complex128
}

func newSolver(comm *mpilib.Comm, p problem) *solver {
	ranks := comm.Size()
	share := p.points() / ranks
	return &solver{
		comm: comm, p: p,
		planes: p.nz / ranks, places: p.nx * p.ny / ranks,
		x: newTransform(p.nx), y: newTransform(p.ny), z: newTransform(p.nz),
		spectrum: make([]complex128, share),
		one:      make([]complex128, share), other: make([]complex128, share),
		plane: make([]complex128, p.nx*p.ny),
		line:  make([]complex128, p.nz), lineToo: make([]complex128, p.nz),
		decayX: decay(p.nx), decayY: decay(p.ny), decayZ: decay(p.nz),
		sums: make([]complex128, len(p.checksums)),
	}
}

// decay returns exp(-4 alpha pi² k²) for each wave number of n points, the
// upper half of which stands for the negative ones.
func decay(n int) []float64 {
	d := make([]float64, n)
	for i := range d {
		k := float64(min(i, n-i))
		d[i] = math.Exp(-4 * alpha * math.Pi * math.Pi * k * k)
	}
	return d
}

// solve computes all time steps and returns their checksums.
func (s *solver) solve(ctx context.Context) ([]complex128, error) {
	if err := s.start(ctx); err != nil {
		return nil, err
	}
	for i := range s.sums {
		if err := s.step(ctx); err != nil {
			return nil, fmt.Errorf("step %d: %w", i+1, err)
		}
		s.sums[i] = s.checksum(s.one)
	}
	err := s.messages.Time(func() error { return mpilib.Allreduce(ctx, s.comm, s.sums, s.sums, mpilib.Sum) })
	if err != nil {
		return nil, fmt.Errorf("checksums: %w", err)
	}
	return s.sums, nil
}

// start sets spectrum to the transform of the initial values.
func (s *solver) start(ctx context.Context) error {
	slab, blocks := s.one, s.other
	s.draw(slab)
	s.transformPlanes(slab, true)
	transpose(blocks, slab, s.planes, s.p.nx*s.p.ny)
	arrived := slab
	if err := s.alltoall(ctx, blocks, arrived); err != nil {
		return fmt.Errorf("initial values: %w", err)
	}
	for place := range s.places {
		line := s.spectrum[place*s.p.nz:][:s.p.nz]
		for z := 0; z < s.p.nz; z += s.planes {
			copy(line[z:][:s.planes], arrived[s.piece(place, z):])
		}
		s.z.run(line, s.lineToo, s.z.forward, 1)
	}
	return nil
}

// step goes on by a unit of time and leaves the solution, times the number of
// points, as a slab in one.
func (s *solver) step(ctx context.Context) error {
	if err := ctx.Err(); err != nil { // one rank alone sends nothing that would see it
		return err
	}
	blocks := s.one
	for place := range s.places {
		at := s.comm.Rank()*s.places + place
		xy := s.decayX[at%s.p.nx] * s.decayY[at/s.p.nx]
		wave := s.spectrum[place*s.p.nz:][:s.p.nz]
		for z, d := range s.decayZ {
			wave[z] *= complex(xy*d, 0)
		}
		copy(s.line, wave)
		s.z.run(s.line, s.lineToo, s.z.backward, 1)
		for z := 0; z < s.p.nz; z += s.planes {
			copy(blocks[s.piece(place, z):], s.line[z:][:s.planes])
		}
	}
	arrived := s.other
	if err := s.alltoall(ctx, blocks, arrived); err != nil {
		return err
	}
	slab := s.one
	transpose(slab, arrived, s.p.nx*s.p.ny, s.planes)
	s.transformPlanes(slab, false)
	return nil
}

// piece returns where in blocks the part of a line begins that lies in the
// slab with plane z, the slab's first.
func (s *solver) piece(place, z int) int {
	rank := z / s.planes
	return (rank*s.places + place) * s.planes
}

func (s *solver) alltoall(ctx context.Context, from, to []complex128) error {
	return s.messages.Time(func() error { return mpilib.Alltoall(ctx, s.comm, from, to) })
}

// transformPlanes transforms along x and y.
func (s *solver) transformPlanes(slab []complex128, forward bool) {
	x, y := s.x.backward, s.y.backward
	if forward {
		x, y = s.x.forward, s.y.forward
	}
	size := s.p.nx * s.p.ny
	for ; len(slab) > 0; slab = slab[size:] {
		plane := slab[:size]
		for row := 0; row < size; row += s.p.nx {
			s.x.run(plane[row:][:s.p.nx], s.plane[:s.p.nx], x, 1)
		}
		s.y.run(plane, s.plane, y, s.p.nx)
	}
}

// draw sets the initial values: the benchmark's random numbers by twos, point
// after point.
func (s *solver) draw(slab []complex128) {
	g := random.New(seed)
	g.Skip(2 * uint64(s.comm.Rank()) * uint64(len(slab)))
	for i := range slab {
		re := g.Float64()
		slab[i] = complex(re, g.Float64())
	}
}

// checksum adds up those of the samples that lie in the slab, and divides by
// the number of points, which the backward transform leaves to do.
func (s *solver) checksum(slab []complex128) (sum complex128) {
	first := s.comm.Rank() * s.planes
	for j := 1; j <= samples; j++ {
		x, y, z := j%s.p.nx, 3*j%s.p.ny, 5*j%s.p.nz-first
		if z >= 0 && z < s.planes {
			sum += slab[(z*s.p.ny+y)*s.p.nx+x]
		}
	}
	return sum / complex(float64(s.p.points()), 0)
}

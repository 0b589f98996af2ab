// Command rod computes the temperatures of a rod whose two ends are held at 1: -u” + u/100 = 1/100 in
// 100 points for each rank. It is the program of docs/aiac.md.
package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"log"
	"math"

	"github.com/isthmus-grid/isthmus/aiac"
	"github.com/isthmus-grid/isthmus/mpilib"
)

const points = 50

// rod is the problem: each task has some of the points, and needs the nearest one of each neighbour.
type rod struct{ tasks int }

func (r rod) Tasks() int          { return r.tasks }
func (r rod) Values(_, _ int) int { return 1 }

func (r rod) Needs(task int) (needs []int) {
	for _, t := range []int{task - 1, task + 1} {
		if t >= 0 && t < r.tasks {
			needs = append(needs, t)
		}
	}
	return needs
}

func (r rod) New(task int) (aiac.Task, error) {
	p := &part{task: task}
	if task == 0 {
		p.u[0] = 1
	}
	if task == r.tasks-1 {
		p.u[points+1] = 1
	}
	return p, nil
}

// part is the points of one task, between those of its neighbours or the ends of the rod.
type part struct {
	task int
	u    [points + 2]float64
}

func (p *part) at(i int) float64 { return (p.u[i-1] + p.u[i+1]) / 2.001 } // row i of the system

func (p *part) Step() error { // Gauss-Seidel, forward and back
	for i := 1; i <= points; i++ {
		p.u[i] = p.at(i)
	}
	for i := points; i >= 1; i-- {
		p.u[i] = p.at(i)
	}
	return nil
}

func (p *part) Residual() (most float64) {
	for i := 1; i <= points; i++ {
		most = max(most, math.Abs(p.at(i)-p.u[i]))
	}
	return most
}

func (p *part) Give(to int, v []float64) {
	if v[0] = p.u[points]; to < p.task {
		v[0] = p.u[1]
	}
}

func (p *part) Take(from int, v []float64) {
	if from < p.task {
		p.u[0] = v[0]
	} else {
		p.u[points+1] = v[0]
	}
}

func (p *part) Save(b []byte) []byte {
	b, _ = binary.Append(b, binary.LittleEndian, p.u[1:points+1]) // fails only for types without a size
	return b
}

func (p *part) Load(b []byte) error {
	_, err := binary.Decode(b, binary.LittleEndian, p.u[1:points+1])
	return err
}

func main() {
	ctx := context.Background()
	world, err := mpilib.Init(ctx)
	if err != nil {
		log.Fatal(err)
	}
	r, err := aiac.Run(ctx, world.Comm(), rod{world.Comm().Size()}, aiac.Options{Mode: aiac.Async, Tolerance: 1e-9})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("task %d: %d iterations, residual %.1e, u = %.4f in the middle\n", world.Comm().Rank(), r.Iterations, r.Residual, r.Task.(*part).u[points/2])
	if err := world.Finalize(ctx); err != nil {
		log.Fatal(err)
	}
}

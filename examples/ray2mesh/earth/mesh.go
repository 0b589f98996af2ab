package earth

import "math"

const (
	bands    = 18  // of latitude, in a mesh
	sectors  = 36  // of longitude
	piece    = 200 // km of a ray that count for one cell, at most
	fraction = 1e6 // of a kilometre: lengths in a mesh are in millimetres
)

// A Mesh is how far rays have run in each cell, in millimetres: a cell is ten
// degrees of latitude by ten of longitude of a shell. Whole numbers give the same
// sums in any order, so that meshes of different ranks can be added up. The shells
// lie one behind the other.
type Mesh []int64

// NewMesh returns the empty mesh of a model.
func NewMesh(m Model) Mesh { return make(Mesh, len(m)*bands*sectors) }

// Add adds a ray of the model that goes from one point to another.
func (g Mesh) Add(m Model, ray Ray, from, to Point) {
	direction, _ := from.toward(to)
	at := func(angle float64) Point { return from.plus(math.Cos(angle), direction, math.Sin(angle)) }
	passed := 0.0 // radians
	m.descend(ray.Parameter, func(c crossing) {
		pieces := int(math.Ceil((c.from - c.to) / piece))
		length := (c.from - c.to) / float64(pieces)
		amount := int64(math.Round(length * fraction))
		start := math.Atan2(c.from, c.closest)
		for i := range pieces {
			middle := c.from - (float64(i)+0.5)*length
			angle := passed + start - math.Atan2(middle, c.closest)
			g[cell(c.shell, at(angle))] += amount
			g[cell(c.shell, at(ray.Distance-angle))] += amount // the other half
		}
		passed += c.angle()
	})
}

// cell returns the number of the cell of a shell below a point.
func cell(shell int, p Point) int {
	band := int((0.5 + math.Asin(max(-1, min(1, p[2])))/math.Pi) * bands)
	sector := int((0.5 + math.Atan2(p[1], p[0])/(2*math.Pi)) * sectors)
	return (shell*bands+min(band, bands-1))*sectors + min(sector, sectors-1)
}

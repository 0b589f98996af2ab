package earth

import "math"

// A Ray is the fastest way between two points of the surface.
type Ray struct {
	Parameter float64 // s/rad
	Distance  float64 // between the points, radians
	Seconds   float64
}

const (
	takeOffs    = 90   // angles that are tried, even between straight down and level
	halvings    = 50   // of the interval between two of them
	closeEnough = 1e-7 // radians, less than a metre on the Earth
)

// Trace finds the ray that surfaces at a distance, in radians from 0 to pi. There
// is none in the shadow of a slower core. It shoots rays at many angles and, where
// the distance lies between two neighbours', closes in on it: several may surface
// there, and the first to come counts.
func (m Model) Trace(distance float64) (ray Ray, ok bool) {
	const step = math.Pi / 2 / takeOffs
	level := m[0].Top / m[0].Speed
	last, _ := m.shoot(0)
	for i := 1; i <= takeOffs; i++ {
		p := level * math.Sin(float64(i)*step)
		reach, _ := m.shoot(p)
		if (last < distance) != (reach < distance) {
			found, hit := m.closeIn(distance, level*math.Sin(float64(i-1)*step), p)
			if hit && (!ok || found.Seconds < ray.Seconds) {
				ray, ok = found, true
			}
		}
		last = reach
	}
	return ray, ok
}

// closeIn halves an interval of parameters at whose ends rays surface on
// different sides of distance. Where they jump over it there is no ray.
func (m Model) closeIn(distance, a, b float64) (ray Ray, ok bool) {
	reach, _ := m.shoot(a)
	short := reach < distance
	for range halvings {
		middle := (a + b) / 2
		if reach, _ := m.shoot(middle); (reach < distance) == short {
			a = middle
		} else {
			b = middle
		}
	}
	reach, seconds := m.shoot(a)
	return Ray{a, distance, seconds}, math.Abs(reach-distance) < closeEnough
}

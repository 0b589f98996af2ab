// Package earth traces seismic rays through a sphere of layers, from an event to
// a station, and adds up how far they run in each cell of a mesh: what a
// tomography of the Earth starts from. A ray is straight within a layer; r sin(i)
// / v, its distance from the centre times the sine of its angle with the
// vertical over the speed, is the same all along it (Snell and Descartes, in
// spherical geometry). The package knows no messages and keeps no state.
//
// Results are the same bit for bit on machines of one architecture.
package earth

import "math"

// A Shell is a layer of one speed, from its top down to the top of the next, or
// to the centre.
type Shell struct {
	Top   float64 // km from the centre
	Speed float64 // km/s
}

// A Model is the shells from the surface down. Memory of it can be sent as it
// lies.
type Model []Shell

// Layered returns an Earth of round numbers near those of compressional waves in
// it: crust, mantle, outer and inner core.
func Layered() Model {
	return Model{
		{6371, 5.8}, {6356, 6.8}, {6336, 8.1}, {6151, 8.6}, {5961, 9.6}, {5771, 10.2}, {5701, 10.9}, {5400, 11.6}, {5000, 12.2},
		{4600, 12.7}, {4200, 13.2}, {3800, 13.6}, {3480, 8.3}, {2900, 8.9}, {2300, 9.5}, {1800, 10.0}, {1221, 11.1},
	}
}

// bottom returns where shell i ends, in km from the centre.
func (m Model) bottom(i int) float64 {
	if i+1 < len(m) {
		return m[i+1].Top
	}
	return 0
}

// A crossing is one half of a ray's way through a shell: down to the next, or to
// where the ray turns, which makes it level. On the straight line that it is a
// part of, from is where it begins and to where it ends, counted from the point
// closest to the centre, which is near away from it. All in km.
type crossing struct {
	shell             int
	closest, from, to float64
}

// seconds is how long it takes.
func (c crossing) seconds(m Model) float64 { return (c.from - c.to) / m[c.shell].Speed }

// angle is how far it gets around the centre, in radians.
func (c crossing) angle() float64 { return math.Atan2(c.from, c.closest) - math.Atan2(c.to, c.closest) }

// descend calls visit with the crossings of the ray with parameter p (s/rad), from
// the surface to its deepest point: where it is level, the centre, or the top of
// a shell so much faster that it is reflected there. The other half is the same
// the other way round.
func (m Model) descend(p float64, visit func(crossing)) {
	for i, shell := range m {
		near := p * shell.Speed
		if near >= shell.Top {
			return
		}
		c := crossing{shell: i, closest: near, from: leg(shell.Top, near)}
		bottom := m.bottom(i)
		if near < bottom {
			c.to = leg(bottom, near)
		}
		visit(c)
		if near >= bottom {
			return
		}
	}
}

// leg is the other leg of a right triangle.
func leg(hypotenuse, other float64) float64 {
	return math.Sqrt((hypotenuse - other) * (hypotenuse + other))
}

// shoot returns how far around the centre the ray with parameter p surfaces again,
// in radians, and after how many seconds.
func (m Model) shoot(p float64) (angle, seconds float64) {
	m.descend(p, func(c crossing) {
		angle += c.angle()
		seconds += c.seconds(m)
	})
	return 2 * angle, 2 * seconds
}

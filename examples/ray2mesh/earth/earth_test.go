package earth

import (
	"math"
	"testing"
)

// In a sphere of one speed rays are chords: D radians apart, 2 R sin(D/2) long.
func TestChords(t *testing.T) {
	m := Model{{1000, 2}}
	for d := 0.05; d < math.Pi; d += 0.05 {
		ray, ok := m.Trace(d)
		if want := 1000 * math.Sin(d/2); !ok || math.Abs(ray.Seconds-want) > 1e-6 {
			t.Errorf("distance %g: %+v, want %g s", d, ray, want)
		}
	}
}

// walk is the oracle: it goes from shell to shell in the plane, by vectors, and
// bends the ray at each boundary by Snell's law.
func walk(m Model, takeOff float64) (angle, seconds float64) {
	type vector struct{ x, y float64 }
	at, to := vector{0, m[0].Top}, vector{math.Sin(takeOff), -math.Cos(takeOff)}
	shell := 0
	for {
		// The way to the boundary below, or if that is missed, to the one above.
		along := at.x*to.x + at.y*to.y
		square := at.x*at.x + at.y*at.y
		below := m.bottom(shell)
		way, down := 0.0, false
		if q := along*along - square + below*below; along < 0 && q > 0 && below > 0 {
			way, down = -along-math.Sqrt(q), true
		} else {
			way = -along + math.Sqrt(along*along-square+m[shell].Top*m[shell].Top)
		}
		at = vector{at.x + way*to.x, at.y + way*to.y}
		seconds += way / m[shell].Speed
		next := shell - 1
		if down {
			next = shell + 1
		}
		if next < 0 {
			angle = math.Atan2(at.x, at.y)
			if angle < 0 {
				angle += 2 * math.Pi
			}
			return angle, seconds
		}
		r := math.Hypot(at.x, at.y)
		normal := vector{at.x / r, at.y / r}
		radial := to.x*normal.x + to.y*normal.y
		flat := vector{to.x - radial*normal.x, to.y - radial*normal.y}
		bend := m[next].Speed / m[shell].Speed
		sine := math.Hypot(flat.x, flat.y) * bend
		if sine >= 1 { // reflected
			to = vector{flat.x - radial*normal.x, flat.y - radial*normal.y}
			continue
		}
		cosine := math.Copysign(math.Sqrt(1-sine*sine), radial)
		to = vector{flat.x*bend + cosine*normal.x, flat.y*bend + cosine*normal.y}
		shell = next
	}
}

func TestShootAgainstWalk(t *testing.T) {
	m := Layered()
	for i := 1; i < 200; i++ {
		takeOff := math.Pi / 2 * (float64(i) + 0.137) / 200
		angle, seconds := m.shoot(m[0].Top * math.Sin(takeOff) / m[0].Speed)
		wantAngle, wantSeconds := walk(m, takeOff)
		if math.Abs(math.Mod(angle, 2*math.Pi)-wantAngle) > 1e-9 || math.Abs(seconds-wantSeconds) > 1e-6 {
			t.Errorf("take-off %g: %g rad after %g s, want %g after %g", takeOff, angle, seconds, wantAngle, wantSeconds)
		}
	}
}

// Straight through the centre, and no ray in the core's shadow.
func TestThroughTheCentreAndShadow(t *testing.T) {
	m := Layered()
	want := 0.0
	for i, s := range m {
		want += 2 * (s.Top - m.bottom(i)) / s.Speed
	}
	if angle, seconds := m.shoot(0); math.Abs(angle-math.Pi) > 1e-12 || math.Abs(seconds-want) > 1e-9 {
		t.Errorf("%g rad after %g s, want pi after %g", angle, seconds, want)
	}
	slowCore := Model{{1000, 2}, {500, 1}}
	// The chord that grazes the core surfaces 120 degrees away; what enters, further.
	if ray, ok := slowCore.Trace(121 * math.Pi / 180); ok {
		t.Errorf("in the shadow there is %+v", ray)
	}
	if _, ok := slowCore.Trace(119 * math.Pi / 180); !ok {
		t.Error("before the shadow there is no ray")
	}
}

// Of the rays that surface at a place none is faster.
func TestFirstToCome(t *testing.T) {
	m := Layered()
	found := 0
	for d := 0.1; d < 3.1; d += 0.1 {
		ray, ok := m.Trace(d)
		if !ok {
			continue
		}
		found++
		for i := range 20000 {
			p := m[0].Top / m[0].Speed * float64(i) / 20000
			if reach, seconds := m.shoot(p); math.Abs(reach-d) < 1e-5 && seconds < ray.Seconds-0.05 {
				t.Errorf("distance %g: %g s, but parameter %g takes %g", d, ray.Seconds, p, seconds)
			}
		}
	}
	if found < 25 {
		t.Errorf("only %d of 30 distances have a ray", found)
	}
}

// The mesh has the whole length of a ray, which is speed times time in each
// shell, and each half of it once.
func TestMesh(t *testing.T) {
	m := Layered()
	survey := NewSurvey(200, 20)
	for i := range int64(200) {
		from, to := survey.Ends(i)
		ray, ok := m.Trace(from.Distance(to))
		if !ok {
			continue
		}
		mesh, back := NewMesh(m), NewMesh(m)
		mesh.Add(m, ray, from, to)
		back.Add(m, ray, to, from)
		want := make([]float64, len(m))
		m.descend(ray.Parameter, func(c crossing) { want[c.shell] += 2 * c.seconds(m) * m[c.shell].Speed })
		touched := 0
		for s := range m {
			sum := 0.0
			for c := s * bands * sectors; c < (s+1)*bands*sectors; c++ {
				sum += float64(mesh[c]) / fraction
				if mesh[c] != 0 {
					touched++
				}
				if d := mesh[c] - back[c]; d != 0 && math.Abs(float64(d)) > piece*fraction {
					t.Errorf("ray %d: cell %d has %d one way and %d the other", i, c, mesh[c], back[c])
				}
			}
			if math.Abs(sum-want[s]) > 1e-3 {
				t.Errorf("ray %d: %g km in shell %d, want %g", i, sum, s, want[s])
			}
		}
		if ray.Distance > 0.5 && touched < 5 {
			t.Errorf("ray %d over %g rad touches %d cells", i, ray.Distance, touched)
		}
	}
}

// One ray whose way is plain: along the equator, in a sphere of one shell, from 5
// to 115 degrees east.
func TestMeshAlongTheEquator(t *testing.T) {
	m := Model{{1000, 1}}
	at := func(east float64) Point {
		a, up := east*math.Pi/180, 1e-3 // just north of it
		return Point{math.Cos(a) * math.Sqrt(1-up*up), math.Sin(a) * math.Sqrt(1-up*up), up}
	}
	ray, ok := m.Trace(at(5).Distance(at(115)))
	if !ok {
		t.Fatal("no ray")
	}
	mesh := NewMesh(m)
	mesh.Add(m, ray, at(5), at(115))
	for c, length := range mesh {
		band, sector := c/sectors, c%sectors
		inside := band == bands/2 && sector >= sectors/2 && sector <= sectors/2+11
		if inside != (length > 0) && !(inside && sector > sectors/2 && sector < sectors/2+11) {
			t.Errorf("band %d, sector %d: %d mm", band, sector, length)
		}
	}
}

func TestToward(t *testing.T) {
	a := Point{0, 0, 1}
	for _, b := range []Point{a, {0, 0, -1}, {0, 1, 0}} {
		direction, distance := a.toward(b)
		if math.Abs(direction.dot(a)) > 1e-12 || math.Abs(direction.dot(direction)-1) > 1e-12 || math.Abs(math.Cos(distance)-a.dot(b)) > 1e-12 {
			t.Errorf("toward %v: %v, %g", b, direction, distance)
		}
	}
}

func BenchmarkTrace(b *testing.B) {
	m := Layered()
	mesh := NewMesh(m)
	survey := NewSurvey(1000, 10)
	for i := int64(0); b.Loop(); i++ {
		from, to := survey.Ends(i % 1000)
		if ray, ok := m.Trace(from.Distance(to)); ok {
			mesh.Add(m, ray, from, to)
		}
	}
}

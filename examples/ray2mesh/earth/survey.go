package earth

import "math"

// A Point is a place on the surface: a vector of length 1 from the centre.
type Point [3]float64

// A Survey is who listens to what: every station to every event. Ray number i is
// that of event i / stations and station i % stations.
type Survey struct {
	Events, Stations []Point
}

// NewSurvey returns a survey with at least so many rays, of places that seem
// random and are always the same.
func NewSurvey(rays, stations int) Survey {
	s := Survey{Stations: scatter(1, stations)}
	s.Events = scatter(2, (rays+stations-1)/stations)
	return s
}

// Ends returns a ray's event and station.
func (s Survey) Ends(ray int64) (from, to Point) {
	n := int64(len(s.Stations))
	return s.Events[ray/n], s.Stations[ray%n]
}

// scatter places points evenly on the sphere.
func scatter(seed uint64, n int) []Point {
	points := make([]Point, n)
	for i := range points {
		height := 2*even(seed, 2*i) - 1
		turn := 2 * math.Pi * even(seed, 2*i+1)
		flat := math.Sqrt(1 - height*height)
		points[i] = Point{flat * math.Cos(turn), flat * math.Sin(turn), height}
	}
	return points
}

// even returns number i of a sequence that is even in [0, 1).
func even(seed uint64, i int) float64 { return float64(Mix(Mix(seed)+uint64(i))>>11) / (1 << 53) }

// Mix is the output function of the generator SplitMix64 (Steele, Lea and
// Flood, OOPSLA 2014); programs make checksums of it, too.
func Mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// dot returns the inner product.
func (a Point) dot(b Point) float64 { return a[0]*b[0] + a[1]*b[1] + a[2]*b[2] }

// plus returns x a + y b.
func (a Point) plus(x float64, b Point, y float64) Point {
	return Point{x*a[0] + y*b[0], x*a[1] + y*b[1], x*a[2] + y*b[2]}
}

// toward returns the direction in which b lies from a, level with the surface at
// a, and how far away it is, in radians. Of a point and itself, or the one across,
// the direction is any.
func (a Point) toward(b Point) (direction Point, distance float64) {
	straight := b.plus(1, a, -a.dot(b))
	sine := math.Sqrt(straight.dot(straight))
	distance = math.Atan2(sine, a.dot(b))
	if sine > 0 {
		return straight.plus(1/sine, a, 0), distance
	}
	least := 0
	for i, v := range a {
		if math.Abs(v) < math.Abs(a[least]) {
			least = i
		}
	}
	var axis Point
	axis[least] = 1
	across := axis.plus(1, a, -a.dot(axis))
	return across.plus(1/math.Sqrt(across.dot(across)), a, 0), distance
}

// Distance returns how far b is from a, in radians.
func (a Point) Distance(b Point) float64 {
	_, d := a.toward(b)
	return d
}

package npb

import "time"

// Stopwatch adds up the time that a rank spends in message passing. The zero
// value is ready; it belongs to one goroutine.
type Stopwatch struct{ total time.Duration }

// Time runs one operation and adds its time.
func (s *Stopwatch) Time(operation func() error) error {
	start := time.Now()
	err := operation()
	s.total += time.Since(start)
	return err
}

// Seconds returns the sum since the start or the last Reset.
func (s *Stopwatch) Seconds() float64 { return s.total.Seconds() }

// Reset forgets the sum.
func (s *Stopwatch) Reset() { s.total = 0 }

package bench

// Jain is the fairness index of R. Jain: the square of the sum, over n times the
// sum of squares. It is 1 when all values are equal and 1/n when one has all.
// Without values, or when all are 0, it is 0.
func Jain(values []float64) float64 {
	sum, squares := 0.0, 0.0
	for _, v := range values {
		sum += v
		squares += v * v
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / (float64(len(values)) * squares)
}

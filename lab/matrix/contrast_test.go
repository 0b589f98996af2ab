package matrix

import "math"

// contrast is that of two colors by WCAG 2, 1 to 21.
func contrast(r, g, b, r2, g2, b2 uint8) float64 {
	x, y := luminance(r, g, b), luminance(r2, g2, b2)
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}

func luminance(channels ...uint8) (l float64) {
	for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
		c := float64(channels[i]) / 255
		if c <= 0.04045 {
			c /= 12.92
		} else {
			c = math.Pow((c+0.055)/1.055, 2.4)
		}
		l += weight * c
	}
	return l
}

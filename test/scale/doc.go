// Package scale tests many ranks and many links at once, and that a thousand links leave nothing
// behind. It measures memory and descriptors, so it is best run alone.
package scale

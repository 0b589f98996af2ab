// Package doctor tests isthmus doctor behind every kind of gateway, and on a grid that is
// broken on purpose: it names the cause.
package doctor

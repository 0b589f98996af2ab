// Package doctor tests isthmus doctor behind every kind of gateway, and on a deliberately broken
// grid: it names the cause.
package doctor

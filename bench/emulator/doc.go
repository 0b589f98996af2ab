// Package emulator measures the lab's WAN emulator: how exactly it applies its settings (round
// trips, lateness, jitter, loss, rate) and how much traffic it carries. It builds two hosts of its
// own for each figure and removes them afterwards. Compared cases run alternately. Rows say
// whether they meet their targets; a missed target is no error.
package emulator

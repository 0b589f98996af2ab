// Package emulator measures the lab's WAN emulator: how exactly it does what it
// was told (round trips, lateness, jitter, loss, rate) and how much traffic it
// carries. It builds its own two hosts and throws them away after each figure;
// what is compared is run in turn. It decides nothing from the figures: the
// rows say whether they meet their targets, and a missed target is no error.
package emulator

// Package faults tests what happens when daemons are absent, stop, are killed or cut off, and when
// clocks differ: links survive, and errors name the cause.
package faults

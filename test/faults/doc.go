// Package faults tests what happens when daemons are absent, stop, are killed or cut
// off, and when clocks differ: links go on, and errors say what is the matter.
package faults

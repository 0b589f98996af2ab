// Package longpath has the tests of control sessions over long paths that lose packets, in virtual time. They are apart
// because yamux keeps timers in a pool of the process: a test outside of the bubble must not meet them.
package longpath

// Package quota decides how much of a daemon that carries links each user, project and job may use:
// how many links at a time, at what rate, and how many bytes a month. Rates are token buckets that
// waiting flows share fairly.
//
// It moves no bytes and has no clock: the time is an argument, and the result is which flows may
// proceed now and when to call again. Package ratelimit does the waiting. Its state is a Quota,
// which belongs to one caller at a time, and the month's counts, which that caller can store and
// restore.
package quota

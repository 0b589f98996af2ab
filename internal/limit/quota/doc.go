// Package quota decides how much of a daemon that carries links each user,
// project and job may use: how many links at a time, at what rate, and how
// many bytes a month. Rates are token buckets that are shared fairly by those
// who wait for them.
//
// It moves no bytes and has no clock: the time is an argument, and the answer
// is who may go on now and when to ask again. Package pace does the waiting.
// Its state is a Quota, which belongs to one caller at a time, and the month's
// counts, which that caller can store and give back.
package quota

// Package runmap draws where the ranks of a job ran and how their messages went, from their reports
// (mpilib.EnvReport). It shows paths that were used, and states what is unknown: pairs without a
// link, rates that no traffic measured, ranks that ended without a report. It starts nothing and
// queries no daemon.
//
// All state is in the Map, which does not change.
package runmap

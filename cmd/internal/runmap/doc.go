// Package runmap draws where the ranks of a job ran and how their messages went,
// from the reports that they left (mpilib.EnvReport). It shows paths that were used,
// and says what it does not know: pairs without a link, rates that no traffic
// measured, ranks that ended without a report. It starts nothing and asks nobody.
//
// All state is in the Map, which does not change.
package runmap

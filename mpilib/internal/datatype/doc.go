// Package datatype is MPI's datatypes (MPI-4.1, chapter 5): which bytes of a program's memory a
// message is made of, and in which order.
//
// A [Type] is built once from named types by the standard's constructors, is committed, and never
// changes afterwards. Committing computes a plan, a small tree of runs, loops and displacement
// lists, whose size depends on how a type was described and not on how many elements it has.
// [Type.Pack] and [Type.Unpack] follow the plan from any byte of a message to any other, so a
// message can be sent in pieces of any size without a cursor.
//
// Memory is a base address and displacements, as in C: displacements may be negative and the base
// may be MPI_BOTTOM, a nil pointer. Nothing here keeps an address after a call returns.
//
// The package knows no messages, no ranks and no sockets, starts no goroutine, and its only state
// is a cache of the types made from Go types. A Type may be used from any number of goroutines at
// once.
//
// All sizes, extents and displacements are 64 bit, in bytes unless stated otherwise. A value that
// does not fit is an error that names the argument.
package datatype

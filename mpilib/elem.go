package mpilib

// Elem is an element of a buffer: a bool, a number, a complex number, or an array or struct of
// such. Strings, slices, maps, pointers and interfaces refer to memory of one process and are
// refused when a buffer of them is first used (ErrType). A struct's padding is transferred too.
type Elem interface{ any }

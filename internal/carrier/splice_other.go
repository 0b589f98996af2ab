//go:build !linux

package carrier

// copy moves f's bytes until from ends.
func (f *flow) copy() error { return f.copyInUserSpace() }

// Package decide says by which techniques processes of two sites connect, in which
// order, and why each other one is left out. It is a pure function of the two sites'
// profiles, and of what their policies agree on (Within).
package decide

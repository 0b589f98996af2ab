// Package decide decides by which techniques processes of two sites connect, in which order, and
// why each other technique is left out. It is a pure function of the two sites' profiles, of the
// kinds of proxies, and of the agreement of their policies (Within).
package decide

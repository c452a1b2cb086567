//go:build race

package hostile

// slower is by how much the race detector makes slower what is not the guest's code.
const slower = 5

// raced is how many times the memory the race detector takes.
const raced = 4

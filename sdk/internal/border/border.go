// Package border is where Go meets the imports of Job ABI v1: one function
// for each import of package abi, with slices and strings in the place of
// pointers and lengths. They are generated from the table of imports:
//
//	go test ./sdk/internal/border -update
//
// In a guest (wasip1) each function calls its import directly, so that the
// linker drops the imports that a module never reaches. In a native build the
// functions ask the host that [Enter] installed, which is what package
// sdktest does.
package border

// Trapped is what [Trap] panics with in a native build.
type Trapped struct {
	// Message is what the guest has passed to SetError.
	Message string
}

// Error returns the message.
func (t *Trapped) Error() string { return t.Message }

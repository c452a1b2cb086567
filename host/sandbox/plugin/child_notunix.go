//go:build !unix

package plugin

import "time"

// processTime is not known here. What a module takes is bounded by the time that it may take to compile.
func processTime() time.Duration { return 0 }

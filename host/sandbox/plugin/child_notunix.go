//go:build !unix

package plugin

import "time"

// processTime is unknown here. The time limit of a compilation bounds the module.
func processTime() time.Duration { return 0 }

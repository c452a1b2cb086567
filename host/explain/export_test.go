package explain

import "time"

// LocalZone is how this machine's zone is known at a time.
func LocalZone(at time.Time) *time.Location { return fixed(time.Local, at) }

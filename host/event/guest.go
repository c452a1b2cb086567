package event

import "time"

// GuestLog is one line of a guest.
type GuestLog struct {
	// Time is that of the host's clock, Host the instance id.
	Time               time.Time
	Host               string
	Job, TaskID, RunID string
	Item               int // -1 in a listener
	// Fence is the run's fence token; 0 in a listener.
	Fence   int64
	Level   int // see abi.LevelInfo
	Message string
	// Attrs alternates keys and values.
	Attrs []string
}

// GuestMetric is one value that a guest reported.
type GuestMetric struct {
	Job   string
	Item  int
	Kind  int // abi.MetricCounter, …
	Name  string
	Value int64
}

package tree

import (
	"encoding/json"
	"time"
)

// HostDetail is what a host of ours publishes about itself for a job:
// node instances/{id} of our tree, ephemeral.
type HostDetail struct {
	// State is READY or DRAINING as written. A reader turns READY into RUNNING while the host's list of runs is
	// not empty.
	State string `json:"state"`
	// Digest is that of the module that the host runs for the job.
	Digest string `json:"digest,omitempty"`
	// TimeZone is the host's default zone for schedules.
	TimeZone string `json:"timeZone,omitempty"`
	// Admin is the address of the host's admin interface.
	Admin string `json:"admin,omitempty"`
	// Succeeded and Failed count the items that the host has completed for the job since it started. They are
	// updated now and then.
	Succeeded int64 `json:"succeeded,omitempty"`
	Failed    int64 `json:"failed,omitempty"`
	// TriggerArgs is set by hosts that know arguments of triggers; earlier ones do not.
	TriggerArgs bool `json:"triggerArgs,omitempty"`
	// TriggerQueue is set by hosts that begin queued triggers; earlier ones do not.
	TriggerQueue bool `json:"triggerQueue,omitempty"`
	// RecordedKills is set by hosts that find kills in the items' records; for earlier ones, a record that was
	// set means that the run is no longer theirs.
	RecordedKills bool `json:"recordedKills,omitempty"`
}

// The states of a host.
const (
	DetailReady    = "READY"
	DetailRunning  = "RUNNING"
	DetailDraining = "DRAINING"
)

// Data is what the node holds, JSON.
func (d HostDetail) Data() []byte {
	b, err := json.Marshal(d)
	if err != nil { // strings always marshal
		return nil
	}
	return b
}

// ParseDetail parses the data of node instances/{id} of our tree; unreadable data gives the
// zero HostDetail.
func ParseDetail(data []byte) HostDetail {
	var d HostDetail
	if json.Unmarshal(data, &d) != nil {
		return HostDetail{}
	}
	return d
}

// ClusterDetail is what a host publishes about itself for the namespace:
// node @-@hosts/{id}, ephemeral.
type ClusterDetail struct {
	ServerIP string `json:"serverIp"`
	// API is the URL of the host's API, empty if it has none.
	API string `json:"api,omitempty"`
	// Certificate is the SHA-256, in hex, of the API's certificate; empty without TLS.
	Certificate string    `json:"certificate,omitempty"`
	Version     string    `json:"version"`
	Started     time.Time `json:"started"`
	// Sessions are the instance ids that this process had in its sessions, the newest last: at most 100.
	Sessions []string `json:"sessions,omitempty"`
}

// Data is what the node holds, JSON.
func (d ClusterDetail) Data() []byte {
	b, err := json.Marshal(d)
	if err != nil { // texts and a time always marshal
		return nil
	}
	return b
}

// ParseClusterDetail reads a node @-@hosts/{id}; what cannot be read is the zero
// ClusterDetail.
func ParseClusterDetail(data []byte) ClusterDetail {
	var d ClusterDetail
	if json.Unmarshal(data, &d) != nil {
		return ClusterDetail{}
	}
	return d
}
